"""Packed weights of safetensors files as plain ones, a family of formats a file; and what config.json calls them."""
