"""The parent process of a run: it plans visits, sends them to the worker, and keeps the rows."""
