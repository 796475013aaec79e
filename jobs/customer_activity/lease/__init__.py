"""The lease: one live driver a query, fenced by an epoch."""
