"""A cluster that has nothing but transactions, and answers as its test says."""

from __future__ import annotations

import datetime
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from barnabas.cli.balance.cluster_state import Node, Partition, Place
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.partition_leaders import Brokers
from barnabas.cli.kafka.plain_connection import Unanswered, request_schema
from barnabas.cli.kafka.requests import (
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from barnabas.kernel.errors import ErrorCode

NODES = (Node(1, "", "h", 1), Node(2, "", "h", 2), Node(3, is_fenced=True))
BROKERS = Brokers(NODES)
BEGUN_MS = 5_000


@dataclass
class Id:
    """A transactional id at its coordinator."""

    coordinator: int
    producer_id: int
    state: str = "Ongoing"
    places: list[Place] = field(default_factory=list)
    start_ms: int | None = BEGUN_MS


@dataclass
class Open:
    """A producer that a partition remembers, with the transaction that it has open."""

    place: Place
    producer_id: int
    start_offset: int = 10
    last_timestamp: int = 1_000
    epoch: int = 0
    coordinator_epoch: int = -1


class TransactionalCluster(Administration):
    """Owns what coordinators and leaders know. Ports in `silent` give no answer.

    `codes` has, by API, the codes of the next answers; when there are none left, all is well.
    """

    def __init__(self, **leaders: int) -> None:
        super().__init__(Connection("h:1"))
        self.partitions = [
            Partition(name.rpartition("_")[0], int(name.rpartition("_")[2]), (1, 2), (1, 2), leader)
            for name, leader in leaders.items()
        ]
        self.ids: dict[str, Id] = {}
        self.open: list[Open] = []
        self.versions: dict[int, int] = {}
        self.codes: dict[int, deque[ErrorCode]] = {}
        self.silent: set[int] = set()
        self.asked: list[tuple[int, int]] = []
        """(API, port)."""
        self.markers: list[Any] = []

    def refuse(self, api_key: int, *codes: ErrorCode) -> None:
        self.codes[api_key] = deque(codes)

    def ask(self, api_key: int, version: int, make: Any) -> Any:
        return self.ask_broker(("h", 1), api_key, version, make)

    def ask_broker(self, address: tuple[str, int], api_key: int, version: int, make: Any) -> Any:
        self.asked.append((api_key, address[1]))
        if address[1] in self.silent:
            raise Unanswered(f"{address[0]}:{address[1]} did not answer")
        request = make(request_schema(api_key, min(version, self.versions.get(api_key, version))))
        codes = self.codes.get(api_key)
        code = codes.popleft() if codes else ErrorCode.none
        return _ANSWERS[api_key](self, request, address[1], code)

    def count(self, api_key: int) -> int:
        return sum(asked == api_key for asked, _ in self.asked)

    def cluster(self, request: Any, port: int, code: ErrorCode) -> Any:
        brokers = [
            SimpleNamespace(
                broker_id=node.node_id,
                rack=None,
                host=node.host or "h",
                port=node.port or 0,
                is_fenced=node.is_fenced,
            )
            for node in NODES
            if not node.is_fenced or request.include_fenced_brokers
        ]
        return SimpleNamespace(error_code=code, error_message=None, brokers=brokers)

    def topics(self, request: Any, port: int, code: ErrorCode) -> Any:
        named = {topic.name for topic in request.topics}
        by_topic: dict[str, list[Any]] = {}
        for part in self.partitions:
            if not named or part.topic in named:
                by_topic.setdefault(part.topic, []).append(
                    SimpleNamespace(
                        partition_index=part.number,
                        leader_id=part.leader,
                        replica_nodes=part.replicas,
                        isr_nodes=part.isr,
                        eligible_leader_replicas=None,
                        last_known_elr=None,
                        offline_replicas=(),
                    )
                )
        topics = [
            SimpleNamespace(error_code=code, name=name, is_internal=False, partitions=parts)
            for name, parts in by_topic.items()
        ]
        return SimpleNamespace(topics=topics, next_cursor=None)

    def listed(self, request: Any, port: int, code: ErrorCode) -> Any:
        states = [
            SimpleNamespace(transactional_id=name, producer_id=each.producer_id, transaction_state=each.state)
            for name, each in self.ids.items()
            if each.coordinator == port
            and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
            and (not request.state_filters or each.state in request.state_filters)
        ]
        return SimpleNamespace(error_code=code, unknown_state_filters=(), transaction_states=states)

    def coordinators(self, request: Any, port: int, code: ErrorCode) -> Any:
        found = [
            SimpleNamespace(
                key=name,
                node_id=(at := self.ids[name].coordinator if name in self.ids else 1),
                host="h",
                port=at,
                error_code=code,
                error_message=None,
            )
            for name in request.coordinator_keys
        ]
        return SimpleNamespace(coordinators=found)

    def described(self, request: Any, port: int, code: ErrorCode) -> Any:
        return SimpleNamespace(
            transaction_states=[self._state(name, port, code) for name in request.transactional_ids]
        )

    def _state(self, name: str, port: int, code: ErrorCode) -> Any:
        found = self.ids.get(name)
        if found is None:
            code = code or ErrorCode.transactional_id_not_found
            return SimpleNamespace(transactional_id=name, error_code=code)
        assert found.coordinator == port
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return SimpleNamespace(
            transactional_id=name,
            error_code=code,
            transaction_state=found.state,
            producer_id=found.producer_id,
            producer_epoch=0,
            transaction_timeout=datetime.timedelta(milliseconds=60_000),
            transaction_start_time=None
            if found.start_ms is None
            else epoch + datetime.timedelta(milliseconds=found.start_ms),
            topics=[SimpleNamespace(topic=topic, partitions=(number,)) for topic, number in found.places],
        )

    def producers(self, request: Any, port: int, code: ErrorCode) -> Any:
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=topic.name,
                    partitions=[
                        SimpleNamespace(
                            partition_index=number,
                            error_code=code,
                            active_producers=[] if code else list(self._remembered((topic.name, number))),
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _remembered(self, place: Place) -> Any:
        for each in self.open:
            if each.place == place:
                yield SimpleNamespace(
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    last_sequence=0,
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.start_offset,
                )

    def offsets(self, request: Any, port: int, code: ErrorCode) -> Any:
        """100 is everybody's end; a transaction holds readers of committed records back."""
        held = {each.place for each in self.open if each.start_offset >= 0}
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=topic.name,
                    partitions=[
                        SimpleNamespace(
                            partition_index=part.partition_index,
                            error_code=code,
                            offset=10
                            if request.isolation_level and (topic.name, part.partition_index) in held
                            else 100,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def marked(self, request: Any, port: int, code: ErrorCode) -> Any:
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        self.markers.append((port, marker))
        part = SimpleNamespace(partition_index=number, error_code=code)
        return SimpleNamespace(
            markers=[SimpleNamespace(topics=[SimpleNamespace(name=topic.name, partitions=[part])])]
        )

    def begun(self, request: Any, port: int, code: ErrorCode) -> Any:
        assert (int(request.producer_id), int(request.producer_epoch)) == (-1, -1)
        assert self.ids[request.transactional_id].coordinator == port
        return SimpleNamespace(error_code=code)


_ANSWERS = {
    DESCRIBE_CLUSTER: TransactionalCluster.cluster,
    DESCRIBE_TOPIC_PARTITIONS: TransactionalCluster.topics,
    LIST_TRANSACTIONS: TransactionalCluster.listed,
    FIND_COORDINATOR: TransactionalCluster.coordinators,
    DESCRIBE_TRANSACTIONS: TransactionalCluster.described,
    DESCRIBE_PRODUCERS: TransactionalCluster.producers,
    LIST_OFFSETS: TransactionalCluster.offsets,
    WRITE_TXN_MARKERS: TransactionalCluster.marked,
    INIT_PRODUCER_ID: TransactionalCluster.begun,
}


class Time:
    """Owns the time that passes while commands wait: not that of the machine."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
