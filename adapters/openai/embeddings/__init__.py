"""OpenAI's embeddings, on both sides."""
