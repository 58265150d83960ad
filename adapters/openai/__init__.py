"""OpenAI's dialect, towards clients and towards providers: chat, completions, responses, embeddings, ranks, tokens."""
