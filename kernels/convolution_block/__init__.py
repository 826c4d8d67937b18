"""A block of a convolutional network in inference: convolution, normalization, activation function."""
