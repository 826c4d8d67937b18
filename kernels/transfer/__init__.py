"""Copies between the memory of the host and that of a GPU."""
