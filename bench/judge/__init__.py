"""Verdicts on rows: what a number may be used for, and what it says. Statistics, no torch."""
