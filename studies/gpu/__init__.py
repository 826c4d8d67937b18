"""Studies of what only a GPU shows: facts that no document states, kernels at random shapes."""
