"""Quality: rules as data, judged by Great Expectations on versions of the tables that belong together; a gate."""
