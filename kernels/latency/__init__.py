"""Latency of memory: how long a load takes that waits for the one before."""
