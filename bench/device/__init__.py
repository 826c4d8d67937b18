"""The device at hand: what it is, what its datasheet says, who else uses it."""
