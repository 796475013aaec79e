"""A customer's purchases by windows of whole days, and the purchases that came too late for them."""
