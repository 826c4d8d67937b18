"""Verdicts on rows: which numbers are suspect, and how rows compare. Statistics, no torch."""
