"""Ollama's native API: `front` towards clients, `upstream` towards providers."""
