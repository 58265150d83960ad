"""The HTTP server: the door, the routes and the one path by which answers leave. Knows no wire words of any dialect."""
