"""Layer normalization: each row made zero-mean and unit-variance, and the gradient of that."""
