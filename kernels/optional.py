"""Libraries that need not be installed: what an implementation says where one is missing."""

from bench.spec import Unsupported


def lacking(implementation: str, package: str, error: Exception) -> Unsupported:
    """For `raise ... from error` where importing `package` failed: which to install, and what was missing."""
    reason = str(error).splitlines()[0]
    return Unsupported(f"{implementation} needs {package}, pip install {package}: {reason}")
