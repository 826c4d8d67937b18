# `roofbench` runs `python -m bench` of one checkout from any folder; the Tab key completes its words.
roofbench() {
    PYTHONPATH=@ROOT@${PYTHONPATH:+:$PYTHONPATH} @PYTHON@ -m bench "$@"
}
_roofbench() {
    local IFS=$'\n'
    COMPREPLY=($(PYTHONPATH=@ROOT@${PYTHONPATH:+:$PYTHONPATH} env COMP_WORDS="${COMP_WORDS[*]}" \
        COMP_CWORD="$COMP_CWORD" @COMPLETE@=complete_bash @PYTHON@ -m bench 2>/dev/null))
}
complete -o default -F _roofbench roofbench
