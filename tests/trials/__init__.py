"""Simulations whose tables are evidence: each a command, `python -m tests.trials.NAME`."""
