"""The harness: a sweep in, rows out. Names no operator."""
