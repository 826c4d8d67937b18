"""Shared parts of the figures: page, style, axes, and the rows as figures need them."""
