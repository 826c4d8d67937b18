"""The first minutes on a GPU: blocks of commands, each of which answers a question, and a summary."""
