"""What the session with three brokers shows besides `differences`: data for tests/golden and docs/compatibility.md."""

from __future__ import annotations

from typing import Final

from barnabas.gateway.parity.differences import Difference

_ANY_GATEWAY: Final = (
    "Any gateway serves any request, so one that is sent to another broker than the leader is done; Kafka refuses it "
    "(NOT_LEADER_OR_FOLLOWER)."
)
_ELECTED_ONCE: Final = (
    "A partition that one request names twice is elected once, and the second time the election is not needed; Kafka "
    "elects it twice, in two leader epochs."
)
_REPLACED: Final = (
    "Where a reassignment is replaced by another, a replica that the first was adding and that is not in sync goes at "
    "once; Kafka has it copy until the second ends, which never comes while its broker is away."
)
_ELIGIBLE_WAITED_FOR: Final = (
    "Eligible leader replicas (KIP-966) are waited for while their brokers are away (REQUEST_TIMED_OUT), for they may "
    "be elected with what was deleted; Kafka waits only for brokers that are there."
)
_NO_OFFSET: Final = (
    "A batch that was appended and not acknowledged is answered without its offset, which Kafka tells."
)
_GOES_ON: Final = (
    "A broker that still runs is not forgotten while it alone could lead a partition that has other replicas; Kafka "
    "forgets it, and nobody leads the partition."
)
_NOT_WHERE: Final = (
    "A Fetch tells who leads, and not at which endpoint: that may be another gateway's by now, and a Java consumer "
    "that knows a broker at two endpoints reads nothing from it."
)
_SAYS_WHY: Final = "A refusal says why, also where Kafka gives only the code, or an empty text."

REPLICATED_DIFFERENCES: Final = (
    Difference(
        ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"),
        "*",
        _ANY_GATEWAY,
        step="*: *at a follower",
    ),
    Difference(("Produce",), "*", _ANY_GATEWAY, step="produce_to_three: where no replica is"),
    Difference(("Fetch",), "*", _ANY_GATEWAY, step="fetch_nearby: sent where no replica is"),
    Difference(
        ("Produce",),
        "responses/*/base_offset",
        _NO_OFFSET,
        step="produce_beside_a_frozen_follower: acks -1",
    ),
    Difference(("Fetch",), "node_endpoints/*", _NOT_WHERE),
    Difference(("UnregisterBroker",), "error_*", _GOES_ON, step="a_living_one_is_forgotten: that is there"),
    Difference(
        ("ElectLeaders",),
        "replica_election_results/*",
        _ELECTED_ONCE,
        step="elect_in_sync: preferred, twice",
    ),
    Difference(
        ("DescribeTopicPartitions",),
        "topics/*/leader_epoch",
        _ELECTED_ONCE,
        step="elect_in_sync: both elected",
    ),
    Difference(
        ("ListPartitionReassignments", "DescribeTopicPartitions"),
        "topics/*",
        _REPLACED,
        step="reassign_with_one_away: replaced by where it was: *",
    ),
    Difference(
        ("DescribeTopicPartitions",),
        "topics/*",
        _REPLACED,
        step="reassign_with_one_away: without the fenced one: after",
    ),
    Difference(
        ("DeleteRecords",),
        "topics/*",
        _ELIGIBLE_WAITED_FOR,
        step="delete_with_an_eligible_one_away: to 1",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="produce_to_*: acks -1*",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="produce_to_two: enough and too few",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("Produce",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="a_transaction_is_decided_with_one_away: to the one that lacks a replica",
        kafka="null",
        ours="<text>",
    ),
    Difference(
        ("AlterPartitionReassignments",),
        "responses/*/error_message",
        _SAYS_WHY,
        step="reassign_*: *give* up*",
        kafka="null",
        ours="<text>",
    ),
)
