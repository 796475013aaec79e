"""Checkpoints: what each query has planned and committed, and whether its tables agree with it."""
