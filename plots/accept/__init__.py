"""The page of `python -m plots accept`."""
