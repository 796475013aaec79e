"""The quarantine: what is in it, and how records come back from it when what refused them was fixed."""
