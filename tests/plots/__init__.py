"""Tests of plots/."""
