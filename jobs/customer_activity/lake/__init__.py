"""The lake: Delta tables, how they are written once and read, their logs, files and named operations."""
