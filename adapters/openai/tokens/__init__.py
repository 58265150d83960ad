"""Prompts as tokens: vLLM's tokenize and detokenize, llama.cpp's count of a chat prompt, on both sides."""
