"""Providers that ask another server over HTTP."""
