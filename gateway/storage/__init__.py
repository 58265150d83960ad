"""What outlives a request: responses with their input and event log, conversations, stored chat completions."""
