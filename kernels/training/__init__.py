"""One training step of a chain of equal layers, and what saves memory in it."""
