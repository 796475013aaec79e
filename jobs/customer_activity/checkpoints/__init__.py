"""Checkpoints: what each stream has planned and committed, and whether its tables agree with it."""
