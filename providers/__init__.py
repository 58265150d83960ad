"""Canonical requests in, streams of canonical events out. Remote providers do HTTP; the local one drives the engine."""
