"""Cohere's API (v2) as an upstream: chat, embeddings, ranks."""
