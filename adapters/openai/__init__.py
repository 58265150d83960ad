"""OpenAI's dialect: chat completions and legacy completions, towards clients and towards providers."""
