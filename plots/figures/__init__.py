"""The figures of a run and of several runs, one module each."""
