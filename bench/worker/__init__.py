"""The worker process, which owns the device: it alone imports torch, and times what the parent asks for."""
