# Completion of forkless for bash 4.4 and later.

_forkless() {
    local word trimmed rest=${COMP_LINE:0:COMP_POINT} number=0
    local -a words=() places=() answer=() found=()
    # Bash also splits at "=" and ":". What no space separates is one word to forkless.
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        if [[ $trimmed != "$rest" || ${#words[@]} -eq 0 ]]; then
            words+=("$word")
            places+=("$number")
        else
            words[${#words[@]} - 1]+=$word
        fi
        rest=${trimmed#"$word"}
        number=$((number + 1))
    done
    local whole=${words[${#words[@]} - 1]}
    # Bash replaces only what follows its last split.
    local kept=${whole%"$2"}

    mapfile -t answer < <("$1" completions --answer -- "${words[@]:1}" 2>/dev/null)
    local kind=${answer[0]%% *} value=${answer[0]#* }
    COMPREPLY=()
    case $kind in
    command)
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "${places[value]}"
            return
        elif declare -F _command_offset >/dev/null; then
            _command_offset "${places[value]}"
            return
        fi
        mapfile -t COMPREPLY < <(compgen -f -- "$2")
        compopt -o filenames 2>/dev/null
        return
        ;;
    files) mapfile -t found < <(compgen -f -- "${whole#"$value"}") ;;
    directories) mapfile -t found < <(compgen -d -- "${whole#"$value"}") ;;
    commands) mapfile -t found < <(compgen -c -- "${whole#"$value"}" | sort -u) ;;
    users) mapfile -t found < <(compgen -u -- "${whole#"$value"}") ;;
    groups) mapfile -t found < <(compgen -g -- "${whole#"$value"}") ;;
    esac
    for word in "${found[@]}"; do
        word=$value$word
        COMPREPLY+=("${word#"$kept"}")
    done
    for word in "${answer[@]:1}"; do
        word=${word%%$'\t'*}
        COMPREPLY+=("${word#"$kept"}")
        [[ $word == *[=:+-] ]] && compopt -o nospace 2>/dev/null
    done
    [[ $kind == files || $kind == directories ]] && compopt -o filenames 2>/dev/null
    return 0
}

complete -F _forkless forkless
