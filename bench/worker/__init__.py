"""The process that owns the device: it alone imports torch, and times what the parent asks for."""
