"""The terminal: what every command shares, and how reports are drawn."""
