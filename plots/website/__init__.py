"""The pages of `python -m plots site`."""
