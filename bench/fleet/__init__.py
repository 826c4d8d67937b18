"""Many units of one kind of device compared: which of them is slow, in what, and why."""
