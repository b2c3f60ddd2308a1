"""What can become of a request to another service when there is no result.

Two answers matter to whoever asked: it was certainly not carried out, so that it may be sent again at once; or nobody
knows, so that only a request that may be carried out twice is sent again. Whoever implements a link raises these, and
nothing of its own; a service raises `Refused` to refuse, and `OutcomeUnknown` where it does not know itself.
"""

from __future__ import annotations

from enum import Enum, auto

from barnabas.kernel.errors import ErrorCode


class LinkError(Exception):
    """There is no result; the message says why."""


class Unreachable(LinkError):
    """The request was certainly not carried out: the peer cannot be reached, or too much waits for it already."""


class ConnectionRefused(Unreachable):
    """The machine at the peer's address says that no process has the address: what was there has ended.

    Nothing else is this: no silence, no machine or name that cannot be found, no connection that broke.
    """


class NotSentInTime(Unreachable):
    """The request's time was over before it could be sent."""


class OutcomeUnknown(LinkError):
    """The request was sent, and no result came: whether it was carried out is unknown."""


class DeadlinePassed(OutcomeUnknown):
    """The request was sent, and its time is over without a result."""


class Refusal(Enum):
    """Why a peer did not do what it was asked."""

    NOT_ACTIVE = auto()
    """It is not the active controller; the message says which one is."""
    TOO_BUSY = auto()
    """It has too much to do: later."""
    NEVER_ACCEPTED = auto()
    """It will never take this request, however often it is sent."""
    ID_TAKEN = auto()
    """Another process has the id that the request claims."""
    NOT_REGISTERED = auto()
    """It does not know the sender (any more), who is to register first."""
    OTHER_HISTORY = auto()
    """Its metadata do not continue those that the sender has followed."""
    UNKNOWN_CALL = auto()
    """It is of an earlier version, which does not know the call."""


class Refused(LinkError):
    """The peer says in so many words that it did not do it; `code` is Kafka's, where a client is to see one."""

    def __init__(self, why: Refusal, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.why = why
        self.code = code
