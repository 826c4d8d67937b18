"""Pooling: the maximum or the average of windows of an image, and its gradient."""
