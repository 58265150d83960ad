"""The gateway: server, configuration, routing, command line and SDK. Importing it loads nothing: starting is cheap."""
