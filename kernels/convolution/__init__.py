"""Convolution of images: forward, and the gradients of the input and of the weights."""
