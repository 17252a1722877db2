#compdef forkless
# Completion of forkless for zsh.

_forkless() {
    local -a answer plain open
    local line kind value word
    answer=("${(@f)$(${(Q)words[1]} completions --answer -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    kind=${answer[1]%% *}
    value=${answer[1]#* }
    if [[ $kind == command ]]; then
        words=("${(@)words[value + 1,-1]}")
        (( CURRENT -= value ))
        _normal
        return
    fi
    for line in "${(@)answer[2,-1]}"; do
        word=${line%%$'\t'*}
        line=${word//:/\\:}:${line#*$'\t'}
        case $word in
        *[=:+-]) open+=("$line") ;;
        *) plain+=("$line") ;;
        esac
    done
    local found=1
    (( $#plain )) && _describe -V forkless plain && found=0
    (( $#open )) && _describe -V forkless open -S '' && found=0
    compset -P "${(b)value}"
    case $kind in
    files) _files && found=0 ;;
    directories) _files -/ && found=0 ;;
    commands) _command_names -e && found=0 ;;
    users) _users && found=0 ;;
    groups) _groups && found=0 ;;
    esac
    return found
}

if [[ $funcstack[1] == _forkless ]]; then
    _forkless "$@"
else
    compdef _forkless forkless
fi
