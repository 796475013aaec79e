"""Supervision: the driver as a process that is started, found, watched and stopped."""
