"""Libraries that need not be installed: what an implementation says where one is missing."""

from bench.spec import Unsupported, first_line


def lacking(implementation: str, package: str, error: Exception) -> Unsupported:
    """For `raise ... from error` where importing `package` failed: which to install, and what was missing."""
    return Unsupported(f"{implementation} needs {package}, pip install {package}: {first_line(error)}")
