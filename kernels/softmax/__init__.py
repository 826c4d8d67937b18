"""Softmax over rows, and its gradient."""
