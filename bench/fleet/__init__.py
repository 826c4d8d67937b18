"""Many units of one kind of device beside each other: which of them is slow, in what, and why."""
