"""The parent of a run: plans it, asks the worker visit by visit, keeps the rows."""
