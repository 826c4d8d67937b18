"""An operator that misbehaves; a test copies it into the kernels of a copy of the checkout."""
