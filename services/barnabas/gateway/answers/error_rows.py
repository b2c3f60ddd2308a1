"""Which parts of a request its error answer repeats, for the APIs whose answers have a code for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_VERSION_MAX: Final = 32_767


@dataclass(frozen=True)
class Rows:
    """An array of the answer that has one row for each element of an array of the request."""

    answer: str
    """The answer's field."""
    asked: tuple[str, ...]
    """The request's fields, of which a version has one; `a/b` is the array b in each element of a."""
    identity: tuple[tuple[str, str], ...] = ()
    """(field of the row, field of the element that it repeats); an element that is a name or number is repeated."""
    inner: Rows | None = None
    """The rows within each row; without them the row itself carries the error."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What else the row says, where zero or nothing would say something."""
    is_distinct: bool = False
    """Whether a row is given once for elements that are alike."""
    first: int = 0
    last: int = _VERSION_MAX
    """The versions of the answer that repeat this."""


def _same(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


def _partitions(asked: str, asked_as: str = "", *, answer: str = "partitions", **values: Any) -> Rows:
    """Rows for partitions, whose index an answer calls partition_index and the request `asked_as`."""
    name = asked_as or "partition_index"
    return Rows(answer, (asked,), (("partition_index", name),), values=values)


def _topics(answer: str, asked: str, inner: Rows | None) -> Rows:
    return Rows(answer, (asked,), _same("name", "topic_id"), inner)


_INDEXES: Final = _partitions("partition_indexes")
_NUMBERS: Final = _partitions("partitions")
_GROUPS: Final = Rows("groups", ("group_ids", "groups"), (("group_id", "group_id"),))
_RESOURCE: Final = _same("resource_type", "resource_name")
_SHARE_STATE: Final = Rows(
    "results", ("topics",), _same("topic_id"), Rows("partitions", ("partitions",), _same("partition"))
)

ROWS: Final[Mapping[int, tuple[Rows, ...]]] = MappingProxyType(
    {
        0: (  # Produce
            Rows(
                "responses",
                ("topic_data",),
                _same("name", "topic_id"),
                Rows(
                    "partition_responses",
                    ("partition_data",),
                    _same("index"),
                    values={"base_offset": -1, "log_append_time": -1, "log_start_offset": -1},
                ),
            ),
        ),
        1: (  # Fetch: from version 13 on, clients look at the code of the whole first
            Rows(
                "responses",
                ("topics",),
                _same("topic"),
                _partitions(
                    "partitions", "partition", high_watermark=-1, records=b"", aborted_transactions=()
                ),
                last=12,
            ),
        ),
        2: (_topics("topics", "topics", _partitions("partitions")),),  # ListOffsets
        3: (Rows("topics", ("topics",), _same("name", "topic_id")),),  # Metadata
        8: (_topics("topics", "topics", _partitions("partitions")),),  # OffsetCommit
        9: (  # OffsetFetch
            Rows(
                "topics",
                ("topics",),
                _same("name"),
                _partitions("partition_indexes", committed_offset=-1, metadata=""),
                last=1,
            ),
            Rows("groups", ("groups",), _same("group_id")),
        ),
        10: (  # FindCoordinator
            Rows(
                "coordinators",
                ("coordinator_keys",),
                (("key", ""),),
                values={"node_id": -1, "host": "", "port": -1},
            ),
        ),
        15: (_GROUPS,),  # DescribeGroups
        19: (Rows("topics", ("topics",), _same("name"), values={"configs": ()}),),  # CreateTopics
        20: (  # DeleteTopics
            Rows("responses", ("topics",), _same("name", "topic_id")),
            Rows("responses", ("topic_names",), _same("name"), last=5),
        ),
        21: (_topics("topics", "topics", _partitions("partitions", low_watermark=-1)),),  # DeleteRecords
        23: (  # OffsetForLeaderEpoch
            Rows(
                "topics",
                ("topics",),
                _same("topic"),
                Rows("partitions", ("partitions",), _same("partition")),
            ),
        ),
        24: (  # AddPartitionsToTxn
            Rows(
                "results_by_topic_v3_and_below",
                ("v3_and_below_topics",),
                _same("name"),
                _partitions("partitions", answer="results_by_partition"),
                last=3,
            ),
        ),
        27: (  # WriteTxnMarkers
            Rows("markers", ("markers",), _same("producer_id"), _topics("topics", "topics", _INDEXES)),
        ),
        28: (_topics("topics", "topics", _partitions("partitions")),),  # TxnOffsetCommit
        30: (Rows("results", ("creations",)),),  # CreateAcls
        31: (Rows("filter_results", ("filters",), values={"matching_acls": ()}),),  # DeleteAcls
        32: (Rows("results", ("resources",), _RESOURCE, values={"configs": ()}),),  # DescribeConfigs
        33: (Rows("responses", ("resources",), _RESOURCE),),  # AlterConfigs
        34: (  # AlterReplicaLogDirs
            Rows("results", ("dirs/topics",), (("topic_name", "name"),), _NUMBERS),
        ),
        37: (Rows("results", ("topics",), _same("name")),),  # CreatePartitions
        42: (Rows("results", ("groups_names",), (("group_id", ""),)),),  # DeleteGroups
        43: (  # ElectLeaders
            Rows(
                "replica_election_results",
                ("topic_partitions",),
                _same("topic"),
                Rows("partition_result", ("partitions",), (("partition_id", ""),)),
            ),
        ),
        44: (Rows("responses", ("resources",), _RESOURCE),),  # IncrementalAlterConfigs
        45: (_topics("responses", "topics", _partitions("partitions")),),  # AlterPartitionReassignments
        46: (_topics("topics", "topics", _INDEXES),),  # ListPartitionReassignments
        49: (Rows("entries", ("entries",), _same("entity")),),  # AlterClientQuotas
        51: (  # AlterUserScramCredentials: a user once, however many of its credentials change
            Rows("results", ("deletions", "upsertions"), (("user", "name"),), is_distinct=True),
        ),
        61: (_topics("topics", "topics", _INDEXES),),  # DescribeProducers
        65: (  # DescribeTransactions
            Rows(
                "transaction_states",
                ("transactional_ids",),
                (("transactional_id", ""),),
                values={"transaction_start_time": 0},
            ),
        ),
        69: (_GROUPS,),  # ConsumerGroupDescribe
        75: (Rows("topics", ("topics",), _same("name")),),  # DescribeTopicPartitions
        77: (_GROUPS,),  # ShareGroupDescribe
        83: (_SHARE_STATE,),  # InitializeShareGroupState
        84: (_SHARE_STATE,),  # ReadShareGroupState
        85: (_SHARE_STATE,),  # WriteShareGroupState
        86: (_SHARE_STATE,),  # DeleteShareGroupState
        87: (_SHARE_STATE,),  # ReadShareGroupStateSummary
        89: (_GROUPS,),  # StreamsGroupDescribe
        90: (_GROUPS,),  # DescribeShareGroupOffsets
    }
)

TOP_VALUES: Final[Mapping[int, Mapping[str, Any]]] = MappingProxyType(
    {
        10: {"node_id": -1, "port": -1},  # FindCoordinator before version 4
        22: {"producer_id": -1, "producer_epoch": -1},  # InitProducerId
        26: {"producer_id": -1, "producer_epoch": -1},  # EndTxn from version 5 on
        48: {"entries": None},  # DescribeClientQuotas
    }
)
"""What the answer as a whole says besides its error, where zero or nothing would say something."""
