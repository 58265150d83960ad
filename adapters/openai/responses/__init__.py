"""The Responses API: `front` towards clients, `upstream` towards providers, `live` for whoever keeps responses."""
