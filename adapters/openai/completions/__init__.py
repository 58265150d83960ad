"""Legacy completions: `front` towards clients, `upstream` towards providers."""
