"""What coordinators and partitions know of transactions, and markers that end them by hand (KIP-664)."""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.balance.cluster_state import Node, Place
from barnabas.cli.balance.late_transactions import Producer, Transaction
from barnabas.cli.kafka.administration import Address, Administration
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.requests import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
    check,
    nested,
)
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""Of a transactional id, as coordinators call them."""

PLACES_A_REQUEST: Final = 500
"""Partitions that a broker is asked about at a time."""

AGAIN_SECONDS_MAX: Final = ANSWER_SECONDS_MAX
"""How long a coordinator may load, or a partition be without a leader."""

PAUSE_SECONDS: Final = 0.2

_OF_TRANSACTIONS: Final = 1
"""The kind of coordinator that FindCoordinator is asked for."""
_COORDINATORS_FROM: Final = 4
"""The version of FindCoordinator that names several (KIP-699)."""
_DURATION_FROM, _PATTERN_FROM = 1, 2
"""Versions of ListTransactions that filter by duration (KIP-994) and by the ids' names (KIP-1152)."""
_VERSION_FROM: Final = 2
"""The version of WriteTxnMarkers that says by which rules the transaction was (KIP-1228)."""
_LATEST: Final = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1

COORDINATOR_AGAIN: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""Codes on which the coordinator is looked for again."""
LEADER_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Codes on which the partition's leader is looked for again."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which transactional ids are listed: those that meet all of these."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id, with the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Patience:
    """How often something is asked for again, which others have to be ready for first."""

    def __init__(self, seconds: float = AGAIN_SECONDS_MAX) -> None:
        self._ends = time.monotonic() + seconds

    def is_left(self) -> bool:
        """Whether it is asked again; then after a pause."""
        if time.monotonic() >= self._ends:
            return False
        time.sleep(PAUSE_SECONDS)
        return True


def list_transactions(
    administration: Administration, nodes: Iterable[Node], filters: Filters
) -> tuple[list[Listed], list[int]]:
    """(ids in their order, nodes that gave no answer): each broker is asked for those that it coordinates."""

    def ask(node: Node) -> list[Listed] | None:
        try:
            return _listed_by(administration, node, filters)
        except Unanswered:
            return None

    answers = administration.ask_each(nodes, ask)
    silent = [node_id for node_id, answer in answers.items() if answer is None]
    found = {each.transactional_id: each for answer in answers.values() for each in answer or ()}
    return [found[name] for name in sorted(found)], sorted(silent)


def _listed_by(administration: Administration, node: Node, filters: Filters) -> list[Listed]:
    assert node.address is not None

    def make(schema: Any) -> Any:
        fields: dict[str, Any] = {}
        if filters.longer_than_ms is not None:
            _check_served(schema, _DURATION_FROM, "filter transactions by their duration", node)
            fields["duration_filter"] = filters.longer_than_ms
        if filters.pattern:
            _check_served(schema, _PATTERN_FROM, "filter transactional ids by a pattern", node)
            fields["transactional_id_pattern"] = filters.pattern
        return schema(
            state_filters=tuple(filters.states), producer_id_filters=tuple(filters.producer_ids), **fields
        )

    patience = Patience()
    while True:
        answer = administration.ask_broker(node.address, LIST_TRANSACTIONS, _PATTERN_FROM, make)
        if answer.error_code != ErrorCode.coordinator_load_in_progress or not patience.is_left():
            break
    if answer.error_code == ErrorCode.invalid_regular_expression:
        raise Refused(f"{filters.pattern!r} is no regular expression of Java's, by which brokers go")
    check(answer.error_code, f"node {node.node_id} cannot list its transactions")
    if answer.unknown_state_filters:
        raise Refused(
            f"node {node.node_id} does not know the state {', '.join(answer.unknown_state_filters)}"
        )
    return [
        Listed(str(each.transactional_id), node.node_id, int(each.producer_id), str(each.transaction_state))
        for each in answer.transaction_states
    ]


def _check_served(schema: Any, version: int, what: str, node: Node) -> None:
    if schema.__version__ < version:
        raise Refused(f"node {node.node_id} is of a release that cannot {what}: leave that out")


def describe_transactions(administration: Administration, ids: Iterable[str]) -> dict[str, Transaction]:
    """What their coordinators know of transactional ids; those that they do not know are left out."""
    pending = set(ids)
    found: dict[str, Transaction] = {}
    patience = Patience()
    while pending:
        code = ErrorCode.coordinator_not_available
        for coordinator, address, names in find_coordinators(administration, sorted(pending)):
            answer = administration.ask_broker(
                *(address, DESCRIBE_TRANSACTIONS, 0),
                functools.partial(_describing, names),
            )
            for each in answer.transaction_states:
                name = str(each.transactional_id)
                if each.error_code in COORDINATOR_AGAIN:
                    code = each.error_code
                    continue
                pending.discard(name)
                if each.error_code != ErrorCode.transactional_id_not_found:
                    check(each.error_code, f"cannot describe the transactional id {name}")
                    found[name] = _transaction(each, coordinator)
        if pending and not patience.is_left():
            check(code, f"cannot describe the transactional id {min(pending)}")
    return found


def _describing(names: Sequence[str], schema: Any) -> Any:
    return schema(transactional_ids=tuple(names))


def _transaction(answer: Any, coordinator: int) -> Transaction:
    begun = answer.transaction_start_time
    return Transaction(
        str(answer.transactional_id),
        coordinator,
        int(answer.producer_id),
        int(answer.producer_epoch),
        str(answer.transaction_state),
        round(answer.transaction_timeout / _MILLISECOND),
        None if begun is None else (begun - _EPOCH) // _MILLISECOND,
        sorted((str(topic.topic), int(number)) for topic in answer.topics for number in topic.partitions),
    )


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def find_coordinators(
    administration: Administration, ids: Sequence[str]
) -> Iterator[tuple[int, Address, list[str]]]:
    """(node id, address, the transactional ids that it coordinates) of each coordinator."""

    def make(schema: Any) -> Any:
        if schema.__version__ < _COORDINATORS_FROM:
            raise Refused(
                "the brokers are of a release before Kafka 3.0, which does not describe transactions"
            )
        return schema(key_type=_OF_TRANSACTIONS, coordinator_keys=tuple(ids))

    patience = Patience()
    while True:
        answer = administration.ask(FIND_COORDINATOR, _COORDINATORS_FROM, make)
        failed = [each for each in answer.coordinators if each.error_code != 0]
        if any(each.error_code not in COORDINATOR_AGAIN for each in failed) or not failed:
            break
        if not patience.is_left():
            break
    for each in failed:
        check(each.error_code, f"cannot find the coordinator of {each.key}", each.error_message)
    by_node: dict[tuple[int, Address], list[str]] = {}
    for each in answer.coordinators:
        by_node.setdefault((int(each.node_id), (str(each.host), int(each.port))), []).append(str(each.key))
    for (node_id, address), names in by_node.items():
        yield node_id, address, names


def describe_producers(
    administration: Administration, address: Address, places: Sequence[Place]
) -> tuple[list[Producer], dict[Place, ErrorCode]]:
    """(the producers that these partitions remember on a broker, what is wrong with those that did not say it)."""
    found: list[Producer] = []
    failed: dict[Place, ErrorCode] = {}
    for start in range(0, len(places), PLACES_A_REQUEST):
        some = places[start : start + PLACES_A_REQUEST]

        def make(schema: Any, some: Sequence[Place] = some) -> Any:
            topic = nested(schema, "topics")
            return schema(
                topics=tuple(topic(name=name, partition_indexes=at) for name, at in by_topic(some).items())
            )

        answer = administration.ask_broker(address, DESCRIBE_PRODUCERS, 0, make)
        for topic in answer.topics:
            for part in topic.partitions:
                place = (str(topic.name), int(part.partition_index))
                if part.error_code != 0:
                    failed[place] = ErrorCode(int(part.error_code))
                found += (_producer(place, each) for each in part.active_producers)
    return found, failed


def producers_of(administration: Administration, node: Node, place: Place) -> list[Producer]:
    """The producers that one partition remembers on this node. Raises Refused where it does not say them."""
    assert node.address is not None
    producers, failed = describe_producers(administration, node.address, [place])
    for code in failed.values():
        check(code, f"node {node.node_id} cannot describe the producers of {place[0]}-{place[1]}")
    return producers


def _producer(place: Place, state: Any) -> Producer:
    return Producer(
        place,
        int(state.producer_id),
        int(state.producer_epoch),
        _or_none(state.coordinator_epoch),
        _or_none(state.last_sequence),
        int(state.last_timestamp),
        _or_none(state.current_txn_start_offset),
    )


def _or_none(value: Any) -> int | None:
    return int(value) if value >= 0 else None


def held_back(administration: Administration, address: Address, places: Sequence[Place]) -> list[Place]:
    """Those partitions whose last stable offset is below the high watermark: a transaction is open in them.

    And those of which the leader does not say it.
    """
    found: list[Place] = []
    for start in range(0, len(places), PLACES_A_REQUEST):
        some = places[start : start + PLACES_A_REQUEST]
        ends = _ends(administration, address, some, _READ_UNCOMMITTED)
        # After it: else what is written between the two would look like a gap.
        stable = _ends(administration, address, some, _READ_COMMITTED)
        found += (place for place in some if place not in ends or stable.get(place, -1) < ends[place])
    return found


def _ends(
    administration: Administration, address: Address, places: Sequence[Place], isolation: int
) -> dict[Place, int]:
    def make(schema: Any) -> Any:
        topic = nested(schema, "topics")
        part = nested(topic, "partitions")
        topics = tuple(
            topic(
                name=name, partitions=tuple(part(partition_index=one, timestamp=_LATEST) for one in numbers)
            )
            for name, numbers in by_topic(places).items()
        )
        return schema(replica_id=-1, isolation_level=isolation, topics=topics)

    answer = administration.ask_broker(address, LIST_OFFSETS, 7, make)
    return {
        (str(topic.name), int(part.partition_index)): int(part.offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code == 0
    }


def write_abort_marker(
    administration: Administration,
    address: Address,
    place: Place,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> ErrorCode:
    """What came of a marker that ends a producer's transaction in one partition, written once by its leader.

    It goes by the rules of the first transactions, under which it may have the epoch of the records.
    """

    def make(schema: Any) -> Any:
        marker = nested(schema, "markers")
        topic = nested(marker, "topics")
        version = {"transaction_version": 0} if schema.__version__ >= _VERSION_FROM else {}
        return schema(
            markers=(
                marker(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    coordinator_epoch=coordinator_epoch,
                    transaction_result=False,
                    topics=(topic(name=place[0], partition_indexes=(place[1],)),),
                    **version,
                ),
            )
        )

    answer = administration.ask_broker(address, WRITE_TXN_MARKERS, _VERSION_FROM, make)
    codes = [part.error_code for each in answer.markers for topic in each.topics for part in topic.partitions]
    if len(codes) != 1:
        raise Refused(f"the answer about the marker is of {len(codes)} partitions: is this a Kafka broker?")
    return ErrorCode(int(codes[0]))


def by_topic(places: Iterable[Place]) -> Mapping[str, tuple[int, ...]]:
    """Topic to the numbers of its partitions, as requests have them."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, number in places:
        found[topic] = (*found.get(topic, ()), number)
    return found
