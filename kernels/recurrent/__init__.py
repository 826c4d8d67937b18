"""Recurrent: each column of a matrix times a weight of its own."""
