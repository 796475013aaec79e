"""Storage: where a lake may be, and how it is reached."""
