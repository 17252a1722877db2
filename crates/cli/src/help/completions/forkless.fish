# Completion of forkless for fish.

function __forkless_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer ($words[1] completions --answer -- $words[2..-1] $current 2>/dev/null)
    set -l kind (string split -m 1 ' ' -- $answer[1])
    set -l value $kind[2]
    switch $kind[1]
        case command
            set -l program (string escape -- $words[(math $value + 1)..-1])
            complete -C "$program $current"
            return
        case files directories
            set -l typed (string replace -- "$value" '' $current)
            for path in (complete -C "__fish_command_without_completions $typed")
                if test $kind[1] = files; or string match -q '*/' -- $path
                    echo $value$path
                end
            end
        case commands
            complete -C "$current"
        case users
            __fish_complete_users | string replace -r '^' -- "$value"
        case groups
            __fish_complete_groups | string replace -r '^' -- "$value"
    end
    string join \n -- $answer[2..-1]
end

complete -c forkless -f -a '(__forkless_complete)'
