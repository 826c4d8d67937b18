"""Rows from other people's files, and ours in the formats of other tools."""
