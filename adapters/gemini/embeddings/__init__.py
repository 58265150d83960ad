"""Google's embeddings, on both sides: embedContent and batchEmbedContents, and Vertex AI's predict upstream."""
