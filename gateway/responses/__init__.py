"""The state of the Responses API: what stands before a request, what is kept of its answer, and answers that are made
in the background. Knows no HTTP."""
