"""The architectures that can be served: one file each, and the registry that finds them by a file's own name."""
