"""The forms in which models write tool calls, one syntax a module. Pure."""
