"""llama.cpp's own endpoints towards clients: completion, filling in, and what is asked about the server."""
