"""Silver and gold built once more from bronze, beside the live ones, and compared with them row by row."""
