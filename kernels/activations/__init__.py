"""Activation functions, forward and backward."""
