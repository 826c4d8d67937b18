"""The environment of a run: packages that it needs, and what in it chooses the code that computes."""
