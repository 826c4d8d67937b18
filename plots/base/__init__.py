"""What the figures share: page, style, axes, and the rows as figures need them."""
