"""The commands of `python -m plots`."""
