"""What can become of a request to another service when there is no result.

Two answers matter to whoever asked: it was certainly not carried out, so that it may be sent again at once; or nobody
knows, so that only a request that may be carried out twice is sent again.
"""

from __future__ import annotations


class Unreachable(Exception):
    """The request was certainly not carried out: the peer cannot be reached, or too much waits for it already."""


class NotSentInTime(Unreachable):
    """The request's time was over before it could be sent."""


class OutcomeUnknown(Exception):
    """The request was sent, and no result came: whether it was carried out is unknown."""


class DeadlinePassed(OutcomeUnknown):
    """The request was sent, and its time is over without a result."""
