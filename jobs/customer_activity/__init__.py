"""Customer activity lakehouse."""
