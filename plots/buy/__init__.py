"""The page of `python -m plots buy`."""
