"""Payments: which purchases are paid, which are not, and which payments make none paid."""
