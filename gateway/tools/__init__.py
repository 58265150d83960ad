"""Tools that the gateway itself runs: MCP servers, and functions of installed packages. The loop that lets a model call
them stands between the Responses API and the router. Knows no HTTP of clients; `adapters.openai.responses` has the
words."""
