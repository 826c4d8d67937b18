"""The cause of an exception as rows and reports show it. Kernels say it too, so it is one of the words."""

from bench.spec import cause

__all__ = ["cause"]
