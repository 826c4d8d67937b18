"""Plain arithmetic, as much of it for each byte as is asked for."""
