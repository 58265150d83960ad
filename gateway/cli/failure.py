"""How a command says that it failed."""

__all__ = ["CommandFailed"]


class CommandFailed(Exception):
    """Ends the command with status 1; the message is what stands on stderr, one line for each thing that is wrong."""
