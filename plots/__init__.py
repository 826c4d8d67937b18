"""Figures of a run, drawn from its parquet file alone: no torch, no GPU, no operator."""
