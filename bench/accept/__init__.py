"""Is this device as fast as others of its model: `python -m bench accept`."""
