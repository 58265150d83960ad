"""The processes that serve: sockets, signals, reloads, workers. Nothing that answers a request knows of them."""
