"""The first minutes on a GPU: lists of commands, one list a question, run in turn and summed up."""
