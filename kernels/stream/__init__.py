"""STREAM: how fast memory is read and written."""
