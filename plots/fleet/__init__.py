"""One page about a fleet: which units are slow, in what, since when, and what a synchronous job loses."""
