# Completion for remote-gpu, remote-gpud and the parts for Kubernetes in bash. Subcommands, options and choices are what --help of the installed
# programs shows, so there is nothing here to keep in step with them.

# _remote_gpu_options COMMAND…: its options, one a line.
_remote_gpu_options() {
    "$@" --help 2> /dev/null | sed -nE 's/^  (-[a-z], |    )(--[a-z-]+).*/\2/p'
}

# _remote_gpu_choices OPTION COMMAND…: what the option takes, if that is a choice ("auto|tcp|rdma"), one a line.
_remote_gpu_choices() {
    local option=$1
    shift
    "$@" --help 2> /dev/null | sed -nE "s/^  (-[a-z], |    )$option ([a-z0-9|]+\\|[a-z0-9|A-Z]+)( .*)?\$/\\2/p" |
        tr '|' '\n' | grep -v '[A-Z]'
}

_remote_gpu_words() {
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_remote_gpu() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=${COMP_WORDS[0]} at
    local -a command=("$program")
    COMPREPLY=()
    if [[ ${program##*/} == remote-gpud ]]; then
        local subcommands
        subcommands=$("$program" --help 2> /dev/null | sed -nE '/^Subcommands/,/^$/s/^  ([a-z]+) .*/\1/p')
        if ((COMP_CWORD == 1)) && [[ $current != -* ]]; then
            _remote_gpu_words "$subcommands" "$current"
            return
        fi
        if ((COMP_CWORD > 1)) && grep -qx -- "${COMP_WORDS[1]}" <<< "$subcommands"; then
            command+=("${COMP_WORDS[1]}")
        fi
    elif [[ ${program##*/} == remote-gpu ]]; then
        if ((COMP_CWORD == 1)); then
            _remote_gpu_words "$("$program" --help 2> /dev/null | sed -nE 's/^  ([a-z-]+) .*/\1/p') --help --version" "$current"
            return
        fi
        command+=("${COMP_WORDS[1]}")
        if ((COMP_CWORD == 2)) && [[ ${COMP_WORDS[1]} == cdi && $current != -* ]]; then
            _remote_gpu_words generate "$current"
            return
        fi
        # Behind "--", or the first word that is no option, stands the command to run, with words of its own.
        for ((at = 2; at < COMP_CWORD; at++)); do
            if [[ ${COMP_WORDS[1]} == @(run|compare) && ${COMP_WORDS[at]} == -- ]]; then
                if declare -F _command_offset > /dev/null; then
                    _command_offset $((at + 1))
                else
                    mapfile -t COMPREPLY < <(compgen -c -- "$current")
                fi
                return
            fi
        done
    fi
    if [[ $current == -* ]]; then
        _remote_gpu_words "$(_remote_gpu_options "${command[@]}")" "$current"
        return
    fi
    if [[ $previous == --* ]]; then
        _remote_gpu_words "$(_remote_gpu_choices "$previous" "${command[@]}")" "$current"
    fi
    ((${#COMPREPLY[@]})) || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}

complete -o filenames -F _remote_gpu remote-gpu remote-gpud remote-gpu-kube-controller remote-gpu-kube-node \
    remote-gpu-kube-plugin
