"""One night: measure, hold it against the nights before, report."""
