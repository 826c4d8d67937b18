"""How a case is sampled and what its samples say. Pure arithmetic, without a clock or a device."""
