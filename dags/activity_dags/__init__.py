"""What the DAGs are built from: `activity` commands as tasks, and the driver as something to wait for."""
