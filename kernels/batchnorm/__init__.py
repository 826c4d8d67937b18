"""Batch normalization: forward in training, in inference, and backward."""
