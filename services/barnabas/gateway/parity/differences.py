"""Where answers knowingly differ from a real Apache Kafka's, and why: data for tests/golden and docs/compatibility.md.

`tests/golden` plays one session of requests to a real Kafka and to Barnabas. A difference that no row here explains
fails it, and so does a row that explains nothing any more. What a second session, with three brokers, shows besides has
its rows in `replicated_differences`.
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
    "Features whose requests are not served yet (share and streams groups) are supported at level 0 only, not "
    "finalized, and cannot be set to a higher level; so is that of eligible leader replicas, which are always kept."
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
_KAFKA_FAILS: Final = (
    "What makes Kafka's handler fail (UNKNOWN_SERVER_ERROR) is answered with a code that names the fault: a topic with "
    "neither a name nor an id, a negative size, an isolation level, a codec or an operation on a setting that does not "
    "exist."
)
_OWN_BOUNDS: Final = (
    "A gateway has bounds of its own for what clients may take (max.connections, queued.max.request.bytes), and the "
    "controller notices a dead broker sooner (broker.session.timeout.ms)."
)
_NO_LOGGERS: Final = (
    "There are no broker loggers of Java's kind to show or to change: whatever asks for one is refused."
)
_REFUSED_WITHOUT_START: Final = (
    "A batch is refused without the log start offset, which Kafka tells for some faults."
)
_NO_BATCH: Final = (
    "What no client sends is refused: no records at all (null, which Kafka never answers), bytes after the last whole "
    "batch (which it drops), a batch that claims to be stamped by the broker (which it takes)."
)

_UNSERVED: Final = (
    Difference(
        ("ApiVersions",),
        "api_keys/*",
        "Only what is served is shown: the APIs of share and streams groups, of security "
        "and of the Raft quorum are not yet.",
        kafka="present",
        ours="absent",
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
        _KAFKA_FAILS,
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
        "itself, from its file; here it stays in the brokers' files, and the number is the same.",
    ),
    Difference(
        ("DescribeConfigs",),
        "configs/max.connections/*",
        _OWN_BOUNDS,
        step="describe_broker: settings",
    ),
    Difference(
        ("DescribeConfigs",),
        "configs/queued.max.request.bytes/*",
        _OWN_BOUNDS,
        step="describe_broker: settings",
    ),
    Difference(
        ("DescribeConfigs",),
        "configs/broker.session.timeout.ms/*",
        _OWN_BOUNDS,
        step="describe_broker: settings",
    ),
    Difference(
        ("IncrementalAlterConfigs",),
        "responses/*",
        _KAFKA_FAILS,
        step="*: unknown operation",
    ),
    Difference(
        ("IncrementalAlterConfigs",),
        "responses/*",
        _NO_LOGGERS,
        step="*: logger, *",
    ),
    Difference(
        ("DescribeConfigs",),
        "results/*",
        _NO_LOGGERS,
        step="describe_configs: root logger",
    ),
)

_PRODUCE: Final = (
    Difference(
        ("Produce",),
        "responses/*/log_start_offset",
        _REFUSED_WITHOUT_START,
        ours="-1",
    ),
    Difference(
        ("Produce",),
        "",
        _NO_BATCH,
        step="produce_broken: null",
        kafka="no answer",
    ),
    Difference(
        ("Produce", "ListOffsets"),
        "*",
        _NO_BATCH,
        step="produce_broken: *trailing bytes",
    ),
    Difference(
        ("Produce", "ListOffsets"),
        "*",
        _NO_BATCH,
        step="produce_broken: *log append time",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_code",
        _KAFKA_FAILS,
        step="produce_broken: unknown codec",
    ),
    Difference(
        ("Produce",),
        "*",
        "Compressed records are not unpacked on their way to disk, so what does not decompress is found by its "
        "consumer; Kafka fails with UNKNOWN_SERVER_ERROR.",
        step="produce_compressed: garbled gzip",
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
        ("Fetch", "ListOffsets"),
        "*error_code",
        _KAFKA_FAILS,
        step="*: unknown isolation level",
        kafka="UNKNOWN_SERVER_ERROR",
    ),
    Difference(
        ("Fetch",),
        "responses/*/error_code",
        _KAFKA_FAILS,
        step="fetch: negative bytes*",
        kafka="UNKNOWN_SERVER_ERROR",
    ),
    Difference(
        ("Fetch",),
        "responses/*",
        "Followers do not fetch this way here: a replica's id counts for nothing.",
        step="fetch_as_replica: replica [15]",
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
        ("Produce",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="produce_[abni]*: *",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="[fit]*: *produces*",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("AlterPartitionReassignments",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="alter_partition_reassignments: given up",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("CreatePartitions",),
        "results/*/error_message",
        _SAYS_WHY,
        step="create_partitions: [ui]n*",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("FindCoordinator",),
        "coordinators/*/error_message",
        _SAYS_WHY,
        step="find_coordinator: key type *",
        kafka="",
        ours="<text>",
    ),
)

BY_DESIGN: Final = (
    (
        "DescribeProducers, all of groups and transactions",
        "As above, any gateway serves any request; Kafka refuses one that is sent to another broker than the leader or "
        "the coordinator (NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR).",
    ),
    (
        "Produce",
        "What its leader refuses, for another one leads by then, the gateway sends on to that one; Kafka leaves it to "
        "the client, which hears NOT_LEADER_OR_FOLLOWER. Batches without sequences that are under way at that moment "
        "may change places, as they may with a client that tries again.",
    ),
    (
        "Produce",
        "A batch that claims more records than its bytes can hold, four for each byte where they are compressed, is "
        "refused (INVALID_RECORD). Where records are looked at (cleanup.policy=compact, "
        "message.timestamp.before.max.ms), a batch of more than 150,000 records or 64 MiB without compression is "
        "refused (MESSAGE_TOO_LARGE), unless max.message.bytes is larger; producers then divide it.",
    ),
    (
        "IncrementalAlterConfigs, AlterConfigs",
        "The patterns of a client-metrics resource are RE2's, which are matched in linear time: Java's look-around, "
        "back-references and possessive quantifiers are refused (INVALID_CONFIG).",
    ),
    (
        "ListTransactions",
        "Patterns are RE2's as well: what is Java's alone is refused (INVALID_REGULAR_EXPRESSION). Where a coordinator "
        "gives no answer, the list is empty, with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again.",
    ),
    (
        "InitProducerId, all of groups and transactions",
        "A coordinator whose log takes no writes, as when it has too few replicas, still tells what is committed (but "
        "see OffsetFetch), and refuses all else with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again; Kafka's "
        "says "
        "COORDINATOR_NOT_AVAILABLE, on which they look for another first.",
    ),
    (
        "InitProducerId, AddPartitionsToTxn, EndTxn",
        "A coordinator that was frozen or cut off while another one took over decides nothing before it has heard of "
        "that: clients ask again. Kafka's may say PRODUCER_FENCED or INVALID_TXN_STATE by what it knew, which ends a "
        "Java producer, or that the transaction is committed, and mean the one before.",
    ),
    (
        "OffsetFetch",
        "Where there is no coordinator, or another one than was asked, the code is COORDINATOR_LOAD_IN_PROGRESS; "
        "Kafka's NOT_COORDINATOR has librdkafka look for another and not ask again, so that a partition stands still. "
        "A gateway that has heard no controller for more than ten seconds closes the connection instead: clients look "
        "for another broker, and ask again there.",
    ),
    (
        "OffsetFetch",
        "Offsets are told by a coordinator that is certain to be the owner: one that was frozen or cut off while "
        "another one took over tells none. Kafka's tells what it knew, from which a reader skips records, or, in a "
        "transaction, writes twice. One to which the log's leader has refused a write in the last two seconds, for "
        "want of room or replicas, which it says to the owner alone, tells whoever does not ask for stable ones "
        "(require_stable, as Java's consumers do) of those that are there, if all are that he names; a leader that is "
        "cut off while another one follows it may refuse so for 2.25 s more. Otherwise, while "
        "the log takes no writes, the code is COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again: Java's newer "
        "consumer, after default.api.timeout.ms, throws TimeoutException from poll().",
    ),
    (
        "JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, OffsetCommit, TxnOffsetCommit, "
        "OffsetDelete, DeleteGroups",
        "Nor does such a coordinator end or refuse a member, or say that a group is not there: clients ask again. "
        "Kafka's may say FENCED_INSTANCE_ID by what it knew, which ends a static member that has come back elsewhere.",
    ),
    (
        "OffsetCommit, TxnOffsetCommit, OffsetFetch",
        "What was committed for a topic that has been deleted is told to nobody from that moment on; Kafka tells it to "
        "whoever names the topic until the offset is deleted, too. An offset for such a topic, by a gateway that has "
        "not heard of it yet, is refused with COORDINATOR_LOAD_IN_PROGRESS, on which clients ask again.",
    ),
    (
        "JoinGroup, ConsumerGroupHeartbeat",
        "A group that changes its protocol in the midst of a rebalance has it all the same, also where its coordinator "
        "dies before that is over; Kafka takes what was decided last for what members have, which may leave a "
        "partition to two of them, or to nobody.",
    ),
    (
        "AddPartitionsToTxn",
        "A request without transactions (version 4 and above) is answered; Kafka is silent.",
    ),
    (
        "JoinGroup, OffsetCommit, all of groups",
        "A text of more than 32,767 bytes, which no record of __consumer_offsets can have, is refused "
        "(INVALID_GROUP_ID, INVALID_REQUEST, OFFSET_METADATA_TOO_LARGE); Kafka fails with UNKNOWN_SERVER_ERROR.",
    ),
    (
        "CreatePartitions",
        "Internal topics are refused (INVALID_PARTITIONS); Kafka enlarges __consumer_offsets, and after a restart does "
        "not find most groups' offsets.",
    ),
    (
        "all",
        "A request of more than 50,000 items (topics, partitions, groups and whatever else it lists, all together) "
        "ends the connection, with a line in the gateway's log; Kafka takes what fits in socket.request.max.bytes.",
    ),
    (
        "Metadata",
        "One request creates at most 1,000 topics that are missing; of the others it says LEADER_NOT_AVAILABLE, and "
        "the next request creates more.",
    ),
    (
        "UnregisterBroker",
        "A broker that still runs and is forgotten registers again at once, with a new epoch; Kafka's stays away until "
        "it is started anew.",
    ),
    (
        "Produce",
        "Replicas that a reassignment is adding count for min.insync.replicas once it ends; Kafka counts them at once, "
        "and refuses acks=all (NOT_ENOUGH_REPLICAS) while a topic with fewer replicas than that grows.",
    ),
    ("DescribeClientQuotas", "The values of an entity come in another order; neither promises one."),
    ("DescribeConfigs", "What a setting means (`include_documentation`) is said in other words."),
    (
        "DescribeConfigs",
        "An answer of more than 64 MiB is refused (INVALID_REQUEST): that of some 15,000 topics with documentation.",
    ),
    (
        "CreateTopics",
        "The settings of new topics are left out (topic_config_error_code INVALID_REQUEST) beyond 16 MiB in one "
        "answer, those of some 18,000 topics.",
    ),
    (
        "DeleteGroups, DescribeGroups, DescribeTransactions",
        "Groups and ids of a request whose turn does not come within 10 s are answered with COORDINATOR_NOT_AVAILABLE.",
    ),
    (
        "DescribeGroups, DescribeTransactions, OffsetFetch, DescribeProducers",
        "What one request asks for ends at 16 MiB: the groups, ids or partitions behind that are answered with "
        "COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS or NOT_LEADER_OR_FOLLOWER, after which clients ask "
        "again. What is told twice or more often may come to 1 MiB; a request that repeats more is refused "
        "(INVALID_REQUEST).",
    ),
    (
        "all",
        "A large request (of more than some hundred items, or of much text) that takes longer than 10 s, while others "
        "wait for the memory that it takes, ends its connection. A fetch of that size is then answered with what there "
        "is after 1 s, whatever its max_wait_ms.",
    ),
)
"""(APIs, difference) of what the sessions, compared without regard to order and wording, do not show."""

DIFFERENCES: Final[tuple[Difference, ...]] = (
    *_UNSERVED,
    *_METADATA,
    *_CONFIGS,
    *_PRODUCE,
    *_FETCH,
    *_HABITS,
)
