"""What stands in the place of personal data in the masked table: keyed hashes, and the key that they are made with."""
