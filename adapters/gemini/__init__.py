"""Google's Gemini API (generateContent): `front` towards clients, `upstream` towards providers."""
