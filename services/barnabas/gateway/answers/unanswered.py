"""The code of a request that needed another service in vain, where its handler did not say one itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.leaders import NOBODY_COORDINATES, NOBODY_LEADS

_OF_LEADERS: Final = (0, 1, 2, 21, 23, 61)
"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""
_OF_GROUPS: Final = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)
"""OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup to ListGroups, DeleteGroups, OffsetDelete."""
_INIT_PRODUCER_ID: Final = 22

_CODES: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {
        **dict.fromkeys(_OF_LEADERS, NOBODY_LEADS),
        **dict.fromkeys(_OF_GROUPS, NOBODY_COORDINATES),
        _INIT_PRODUCER_ID: ErrorCode.coordinator_load_in_progress,
    }
)


def unanswered_code(api_key: int) -> ErrorCode:
    """A code that clients of this API retry on.

    REQUEST_TIMED_OUT of all that goes to the controller, as Kafka's brokers say when they forward a request in vain.
    """
    return _CODES.get(api_key, ErrorCode.request_timed_out)
