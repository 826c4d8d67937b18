"""Predictions: arithmetic on the rows of a run, no torch. Facts are stored, these opinions are derived."""
