"""`activity report`: what the pipeline did over some hours, from the lake alone, as a page that needs nothing else."""
