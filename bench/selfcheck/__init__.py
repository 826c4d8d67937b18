"""Whether this machine measures rightly."""
