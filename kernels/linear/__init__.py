"""Fully-connected layers: forward, and both gradients."""
