"""Fetches what requests point to, without being led into private networks. The only code that dials a client's URLs."""
