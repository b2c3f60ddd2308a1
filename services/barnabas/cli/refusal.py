"""How a command says no: one line that names a way out, and a status."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The cluster, or a file, did not do what was asked."""

USAGE: Final = 2
"""The flags do not fit together; nothing was tried."""

INTERRUPTED: Final = 130
"""Ctrl-C, as a shell counts it: 128 + SIGINT."""

PIPE_CLOSED: Final = 141
"""Whoever read our output has gone (`| head`): 128 + SIGPIPE."""


class Refused(Exception):
    """A command ends here; the message is one line for the user, without the program's name."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


class PipeClosed(Exception):
    """Nobody reads our output any more: the command ends without a word."""


def usage(message: str) -> Refused:
    """A refusal of the command line itself."""
    return Refused(message, USAGE)
