"""The features that this build knows (KIP-584): which levels of each it serves, and what a new cluster starts with.

A feature is a switch that the whole cluster throws together: its *supported* range is what the software can do, its
*finalized* level what everybody must act on. The names are those of Kafka 4.3, so that tools find what they look for;
a feature whose requests are not served here supports level 0 only, which is "off".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"

RELEASE_METADATA_VERSION: Final = 30
"""The level of metadata.version that Kafka 4.3 finalizes, written there as 4.3-IV0."""

TRANSACTION_VERSION: Final = "transaction.version"

RELEASE_TRANSACTION_VERSION: Final = 2
"""Each transaction has an epoch of its own, and brokers add its partitions (KIP-890). At level 1 a transaction's record
has fields that older brokers skip; at level 0 it has not, and clients must go by the rules of before.
"""

GROUP_VERSION: Final = "group.version"

RELEASE_GROUP_VERSION: Final = 1
"""Consumer groups may use the protocol of KIP-848."""


class LevelRange(NamedTuple):
    """The levels of one feature that are served, both ends included."""

    low: int
    high: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.low <= level <= self.high


SUPPORTED_FEATURES: Final[Mapping[str, LevelRange]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": LevelRange(0, 0),  # KIP-966: they are always kept
        GROUP_VERSION: LevelRange(0, RELEASE_GROUP_VERSION),  # KIP-848
        "kraft.version": LevelRange(0, 0),  # KIP-853: the quorum is the metadata store's own
        METADATA_VERSION: LevelRange(7, RELEASE_METADATA_VERSION),
        "share.version": LevelRange(0, 0),  # KIP-932
        "streams.version": LevelRange(0, 0),  # KIP-1071
        TRANSACTION_VERSION: LevelRange(0, RELEASE_TRANSACTION_VERSION),  # KIP-890
    }
)

RELEASE_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        METADATA_VERSION: RELEASE_METADATA_VERSION,
        GROUP_VERSION: RELEASE_GROUP_VERSION,
        TRANSACTION_VERSION: RELEASE_TRANSACTION_VERSION,
    }
)
"""What the controller finalizes in a cluster that has no level for it yet: a new one, or one of an older release. A
level that somebody set, 0 included, stays.
"""
