"""The canonical form: messages, requests, events, results, stop reasons, usage, errors."""
