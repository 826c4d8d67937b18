"""Rows on disk: their columns, the journal of a run, its parquet file."""
