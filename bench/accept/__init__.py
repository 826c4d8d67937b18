"""Is this unit as fast as its kind should be: `python -m bench accept`."""
