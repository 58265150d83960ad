"""Tells people beside the requests what they may want to act on: budgets that run out, targets that fail."""
