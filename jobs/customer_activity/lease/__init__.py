"""The lease: one live driver for each stream, fenced by an epoch."""
