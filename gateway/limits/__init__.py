"""How much a client may use: requests, tokens and money, reserved before a request runs and settled after it."""
