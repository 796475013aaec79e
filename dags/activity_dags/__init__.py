"""What the DAGs are made of: the `activity` command as tasks, and its driver as something to wait for."""
