"""Storage nodes' error codes as clients are to see them."""

from __future__ import annotations

from barnabas.kernel.errors import ErrorCode


def client_code(code: int) -> ErrorCode:
    """The code for the client. The gateway has checked that the topic exists.

    A storage node may hear of a new topic a moment after the gateway did: that means "try again", not "no such topic".
    Of one that was deleted a moment before the gateway heard of it, it says so itself: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if code == ErrorCode.unknown_topic_id:
        return ErrorCode.not_leader_or_follower
    return ErrorCode(code)
