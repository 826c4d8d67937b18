"""Studies whose tables are evidence: `python -m studies coverage|prediction`, `python -m studies.NAME`."""
