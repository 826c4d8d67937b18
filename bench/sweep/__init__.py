"""Sweep files: YAML in, cases out, every error with its file and line."""
