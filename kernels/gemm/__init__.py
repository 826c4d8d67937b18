"""General matrix multiplication, C = A B."""
