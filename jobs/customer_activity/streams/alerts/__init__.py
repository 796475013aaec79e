"""Alerts: which purchases first make it true that a customer buys as a fraudster would."""
