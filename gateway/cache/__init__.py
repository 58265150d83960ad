"""Answers that are used again for requests that are the same in everything that changes an answer."""
