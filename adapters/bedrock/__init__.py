"""AWS Bedrock's Converse API, and embeddings, as an upstream."""
