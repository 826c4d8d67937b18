"""Our rows as other tools read them: one file a format. Facts go out; nothing is judged on the way."""
