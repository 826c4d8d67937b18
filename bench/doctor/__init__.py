"""The doctor: whether this machine can be measured, and whether what it measures is right and steady."""
