# `roofbench` runs `python -m bench` of one checkout from any folder; the Tab key completes its words.
roofbench() {
    PYTHONPATH=@ROOT@${PYTHONPATH:+:$PYTHONPATH} @PYTHON@ -m bench "$@"
}
_roofbench() {
    eval "$(PYTHONPATH=@ROOT@${PYTHONPATH:+:$PYTHONPATH} env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" \
        @COMPLETE@=complete_zsh @PYTHON@ -m bench 2>/dev/null)"
}
whence compdef > /dev/null || { autoload -Uz compinit && compinit }
compdef _roofbench roofbench
