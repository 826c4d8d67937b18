"""Many nights of one device: what really changed."""
