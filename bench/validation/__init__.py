"""The harness held against something else: simulated truth, other clocks, its own cost."""
