"""Text state machines that give the same result wherever their input is cut. Pure."""
