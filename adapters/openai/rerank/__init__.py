"""Rerank and score, which OpenAI's API lacks: as Cohere, Jina and vLLM spell them, and TEI towards a provider."""
