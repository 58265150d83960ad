"""Packed weights of files as `QuantizedMatrix`, once at load, a family of formats a file. No number changes."""
