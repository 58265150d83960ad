"""Anthropic's Messages API: `front` towards clients, `upstream` towards providers."""
