"""One case in, its facts out: clocks, rings, sampling, checks, and the process that owns the device."""
