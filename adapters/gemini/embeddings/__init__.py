"""Embeddings: embedContent and batchEmbedContents towards clients, and these or Vertex AI's predict towards providers."""
