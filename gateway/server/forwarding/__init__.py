"""Calls that pass through unread: audio, images, moderations, files and batches."""
