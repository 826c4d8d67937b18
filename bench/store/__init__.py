"""Storage of rows: their columns, the journal of a run, its parquet file."""
