"""Cohere's chat API (v2) as an upstream."""
