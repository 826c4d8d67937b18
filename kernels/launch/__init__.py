"""The launch floor: what it costs to run next to nothing."""
