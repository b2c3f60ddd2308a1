"""Where answers knowingly differ from a real Apache Kafka's, and why: data for tests/golden and docs/compatibility.md.

`tests/golden` plays one session of requests to a real Kafka and to Barnabas. A difference that no row here explains
fails it, and so does a row that explains nothing any more.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Difference:
    """One explained difference. `apis`, `step`, `field` and the two values are patterns of `fnmatch`.

    `step` is "scenario: step" of the session, `field` the path in the decoded answer ("topics/*/error_code"; empty for
    the answer as a whole), `kafka` and `ours` the values in one line.
    """

    apis: tuple[str, ...]
    field: str
    reason: str
    step: str = "*"
    kafka: str = "*"
    ours: str = "*"

    def matches(self, *, api: str, step: str, field: str, kafka: str, ours: str) -> bool:
        """Whether this row is about the difference."""
        return any(fnmatch.fnmatchcase(api, pattern) for pattern in self.apis) and all(
            fnmatch.fnmatchcase(value, pattern)
            for value, pattern in (
                (step, self.step),
                (field, self.field),
                (kafka, self.kafka),
                (ours, self.ours),
            )
        )


_ANY: Final = ("*",)

_NO_SUCH_FEATURES: Final = (
    "Features whose requests are not served yet (transactions, the newer groups) are supported at level 0 only, not "
    "finalized, and cannot be set to a higher level."
)
_NO_TRANSACTIONS: Final = (
    "Transactions are not served yet: whatever names a transactional id is refused "
    "before anything else is seen."
)
_CREATED_AT_ONCE: Final = (
    "A topic that comes to be because it is asked for is in the same answer, with its leaders, or the reason why it "
    "could not be created; Kafka creates it after it has answered UNKNOWN_TOPIC_OR_PARTITION."
)
_NO_RAFT: Final = (
    "The metadata are in another store than a Raft log of brokers: its one voter is the active controller, the brokers "
    "are observers, and offsets are the store's revisions."
)
_SAYS_WHY: Final = "A refusal says why, also where Kafka gives only the code, or an empty text."

_UNSERVED: Final = (
    Difference(
        ("ApiVersions",),
        "api_keys/*",
        "Only what is served is shown: the APIs of transactions, share and streams groups, KIP-848 groups, security, "
        "reassignments and the Raft quorum are not yet.",
        kafka="present",
        ours="absent",
    ),
    Difference(
        ("ApiVersions",),
        "api_keys/22/max_version",
        "Kafka hides the newest version of InitProducerId as unstable; it is served here.",
    ),
    Difference(
        ("ApiVersions",),
        "*_features/*",
        _NO_SUCH_FEATURES,
    ),
    Difference(
        ("ApiVersions",),
        "finalized_features_epoch",
        "A count of changes to the metadata, which are others here.",
    ),
    Difference(
        ("UpdateFeatures",),
        "*",
        _NO_SUCH_FEATURES,
        step="update_features: [sd]*",
    ),
    Difference(
        ("FindCoordinator", "InitProducerId", "Produce"),
        "*",
        _NO_TRANSACTIONS,
        step="*transaction*",
    ),
    Difference(
        ("InitProducerId",),
        "error_code",
        _NO_TRANSACTIONS,
        step="init_producer_id: timeout *",
    ),
)

_METADATA: Final = (
    Difference(
        ("Metadata",),
        "topics/*",
        _CREATED_AT_ONCE,
        kafka="UNKNOWN_TOPIC_OR_PARTITION",
    ),
    Difference(
        ("Metadata",),
        "topics/*/partitions/*",
        _CREATED_AT_ONCE,
        kafka="absent",
    ),
    Difference(
        ("Metadata",),
        "*",
        "A topic with neither a name nor an id is UNKNOWN_TOPIC_ID; Kafka's handler fails with UNKNOWN_SERVER_ERROR.",
        step="metadata_by_id: null name, no id",
    ),
    Difference(("Metadata",), "topics/*/topic_id", _CREATED_AT_ONCE, kafka="null"),
    Difference(
        ("DescribeQuorum",),
        "topics/__cluster_metadata/*",
        _NO_RAFT,
    ),
    Difference(("DescribeQuorum",), "nodes/*", _NO_RAFT),
)

_CONFIGS: Final = (
    Difference(
        ("DescribeConfigs", "CreateTopics"),
        "*configs/min.insync.replicas*",
        "A new Kafka with eligible leader replicas (KIP-966) sets min.insync.replicas for the whole cluster by "
        "itself; here it has its default, which is the same number.",
    ),
    Difference(
        ("DescribeConfigs",),
        "configs/*",
        "A gateway has bounds of its own for what clients may take, and a cluster on one machine notices a dead "
        "broker sooner.",
        step="describe_broker: settings",
    ),
    Difference(
        ("DescribeConfigs",),
        "results/*/value",
        "Spaces around a value are kept as they were given; Kafka shows the value without them.",
        step="incremental_alter_configs: described",
        kafka="77",
    ),
    Difference(
        ("IncrementalAlterConfigs",),
        "responses/*",
        "An operation that does not exist is INVALID_REQUEST; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="*: unknown operation",
    ),
    Difference(
        ("IncrementalAlterConfigs",),
        "responses/*/error_code",
        "There are no broker loggers of Java's kind: every change to one is refused.",
        step="*: logger*",
    ),
    Difference(
        ("CreateTopics",),
        "topics/*",
        "A setting that is given twice is refused; Kafka takes one of the two.",
        step="create_topics: setting twice",
    ),
    Difference(
        ("CreateTopics",),
        "topics/*/topic_id",
        "A topic that is only validated has no id; Kafka shows one that no topic will have.",
        ours="null",
    ),
)

_PRODUCE: Final = (
    Difference(
        ("Produce",),
        "responses/*/log_start_offset",
        "The log start offset is not told where a batch is refused; no client reads it there.",
        ours="-1",
    ),
    Difference(
        ("Produce",),
        "responses/*/record_errors/*",
        "A refused batch is refused as a whole, with a message that names its first bad record; Kafka lists them all.",
        ours="absent",
    ),
    Difference(
        ("Produce",),
        "",
        "Kafka never answers a request without records (null); here it is INVALID_RECORD.",
        step="produce_broken: null",
        kafka="no answer",
    ),
    Difference(
        ("Produce", "ListOffsets"),
        "*",
        "Bytes after the last whole batch make the records invalid; Kafka drops them.",
        step="produce_broken: *trailing bytes",
    ),
    Difference(
        ("Produce", "ListOffsets"),
        "*",
        "A batch that claims to be stamped by the broker is refused (INVALID_TIMESTAMP) where its topic is not; Kafka "
        "takes it.",
        step="produce_broken: *log append time",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_code",
        "A codec that does not exist is UNSUPPORTED_COMPRESSION_TYPE; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="produce_broken: unknown codec",
    ),
    Difference(
        ("Produce",),
        "*",
        "Compressed records are not unpacked on their way to disk, so what does not decompress is found by its "
        "consumer; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="produce_compressed: garbled gzip",
    ),
    Difference(
        ("Produce",),
        "responses/*/log_append_time",
        "For a batch that is there already Kafka tells its newest record's time as the time of appending.",
        step="produce_numbered: * again",
        ours="null",
    ),
    Difference(
        ("Produce",),
        "responses/*",
        "Topics are answered as they were asked for; Kafka puts the rows of one that is named twice together.",
        step="produce_acknowledged: topic twice",
    ),
)

_FETCH: Final = (
    Difference(
        ("Fetch",),
        "responses/*/records/*",
        "Only whole batches are sent; Kafka fills the last bytes with the beginning of one, which its consumer drops.",
        step="fetch: a batch and a half",
    ),
    Difference(
        ("Fetch",),
        "responses/*",
        "Followers do not fetch this way here: a replica's id counts for nothing.",
        step="fetch_as_replica: *",
    ),
    Difference(
        ("Fetch", "ListOffsets"),
        "*",
        "Every isolation level but read committed is read uncommitted; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="*: unknown isolation level",
    ),
    Difference(
        ("Fetch",),
        "responses/*",
        "A negative size is taken for 0: the first batch is sent; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="fetch: negative bytes",
    ),
    Difference(
        ("Fetch", "ListOffsets"),
        "*",
        "A partition that is named twice is answered twice; Kafka answers once, ListOffsets with INVALID_REQUEST.",
        step="*: partition twice",
    ),
)

_HABITS: Final = (
    Difference(
        _ANY,
        "",
        "Text that is not UTF-8, and an array of a negative length other than -1, end the connection; Kafka reads them "
        "as replacement characters and as null.",
        step="frames: *",
        ours="connection closed",
    ),
    Difference(
        _ANY,
        "",
        "A version that is not served is answered with UNSUPPORTED_VERSION where the answer has a place for it; Kafka "
        "ends the connection.",
        step="frames: api * version *",
        kafka="connection closed",
    ),
    Difference(
        ("Produce", "OffsetCommit", "OffsetDelete", "ListOffsets", "DeleteRecords"),
        "*",
        "A topic that is named without partitions is in the answer, without partitions; Kafka leaves it out.",
        step="*: no partitions",
        kafka="absent",
        ours="present",
    ),
    Difference(
        ("DeleteTopics",),
        "responses/*",
        "An empty name counts as none (INVALID_REQUEST); Kafka knows no topic of that name.",
        step="delete_topics: empty name",
    ),
    Difference(
        _ANY,
        "*error_message",
        _SAYS_WHY,
        kafka="null",
        ours="<text>",
    ),
    Difference(
        _ANY,
        "*error_message",
        _SAYS_WHY,
        kafka="",
        ours="<text>",
    ),
    Difference(
        _ANY,
        "*error_message",
        "Where nothing is wrong there is no message (null); Kafka gives an empty one in some APIs.",
        kafka="",
        ours="null",
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    *_UNSERVED,
    *_METADATA,
    *_CONFIGS,
    *_PRODUCE,
    *_FETCH,
    *_HABITS,
)
