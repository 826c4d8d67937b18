"""The commands of `python -m bench` and the lines that they print."""
