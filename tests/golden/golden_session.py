"""The scripted session: scenarios, each run once for each version of the API that it is about, on one cluster.

A scenario is a function of a `Run`. What it asks under a step's name is recorded; what it asks with `quietly` only
prepares the ground. Scenarios name their topics and groups with `run.name(...)`, so that versions do not meet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from golden_answers import Labels, Plain
from kio.index import load_request_schema
from raw_client import CREATE_TOPICS, LIST_OFFSETS, RawConnection

from barnabas.kernel.errors import ErrorCode
from barnabas.wire.schema import version_range

CLOSED: Final = "connection closed"
NO_ANSWER: Final = "no answer"
WAIT_SECONDS: Final = 60.0
ANSWER_SECONDS_MAX: Final = 60.0
"""Far above what an answer takes on a busy machine."""
NO_ANSWER_SECONDS: Final = 3.0
"""How long to wait for an answer that may never come."""

SOFTWARE: Final = {"client_software_name": "golden", "client_software_version": "1.0"}

Ranges = Mapping[int, tuple[int, int]]
Scenario = Callable[["Run"], None]


@dataclass(frozen=True)
class Row:
    """A scenario, the API whose versions it goes through, and the versions (None for all)."""

    function: Scenario
    api_key: int
    newest_only: bool

    @property
    def name(self) -> str:
        return self.function.__name__


SCENARIOS: Final[list[Row]] = []
"""The session with one broker."""

REPLICATED: Final[list[Row]] = []
"""The session with three brokers, of which some are stopped on the way: see `replicated_session`."""


def scenario(
    api_key: int, *, newest_only: bool = False, script: list[Row] = SCENARIOS
) -> Callable[[Scenario], Scenario]:
    """Put a scenario on the list, to be run in every version of `api_key`, or only the newest one."""

    def register(function: Scenario) -> Scenario:
        script.append(Row(function, api_key, newest_only))
        return function

    return register


@dataclass(frozen=True)
class Step:
    """Where an answer belongs."""

    scenario: str
    version: int
    name: str
    api_key: int


class Brokers(Protocol):
    """Stops and starts brokers of a cluster, by id."""

    def stop(self, broker: int, *, kill: bool = False) -> None:
        """End it, in order or with SIGKILL, and leave it down."""

    def start(self, broker: int) -> None:
        """Start it again on its data, and return when it is there."""

    def paused(self, broker: int) -> contextlib.AbstractContextManager[None]:
        """It is frozen while the context is open."""


@dataclass
class Cluster:
    """One side: where it listens, the newest version of each API that is used here, and what was recorded.

    `ports` are those of its brokers, where there are several; `port` is the one that is asked if no other is named.
    """

    port: int
    ranges: Ranges
    ports: Mapping[int, int] = field(default_factory=dict)
    brokers: Brokers | None = None
    topic_ids: dict[uuid.UUID, str] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The producer ids and epochs of transactions that go on in a later scenario, by transactional id."""
    has_coordinators: bool = False
    has_transaction_coordinators: bool = False
    answers: dict[Step, Plain] = field(default_factory=dict)


class Run:
    """One scenario in one version on one cluster: owns a connection to each broker that it asks, and the labels."""

    def __init__(self, cluster: Cluster, row: Row, version: int) -> None:
        self.version = version
        self.cluster = cluster
        self._row = row
        self._labels = Labels(
            host="127.0.0.1", port=cluster.port, topic_ids=cluster.topic_ids, ports=cluster.ports
        )
        self._connections = {0: self.connect()}
        self.settlements = 0

    @property
    def port(self) -> int:
        return self.cluster.port

    def close(self) -> None:
        for connection in self._connections.values():
            connection.__exit__()

    def name(self, what: str) -> str:
        """A name for a topic or group of this scenario in this version, alike on both clusters."""
        return f"{self._row.name}-{self.version}-{what}"

    def newest(self, api_key: int) -> int:
        """The newest version that both clusters have."""
        return self.cluster.ranges[api_key][1]

    def ask(
        self,
        step: str,
        body: Mapping[str, Any],
        *,
        api: int | None = None,
        version: int | None = None,
        seconds: float = ANSWER_SECONDS_MAX,
        at: int = 0,
    ) -> Any:
        """Send a request, record the answer under the name `step`, return it; None where there was none.

        Without `api` it is the scenario's own API in its present version, else `api` in its newest one; `at` is the
        broker that is asked.
        """
        connection = self._connection_to(at)
        connection._socket.settimeout(seconds)
        key = self._row.api_key if api is None else api
        if version is None:
            version = self.version if api is None else self.newest(key)
        check_fields(key, body)
        try:
            answer = connection.ask(key, version, body)
        except (ConnectionError, TimeoutError) as error:
            self.record(step, CLOSED if isinstance(error, ConnectionError) else NO_ANSWER, key)
            self.reconnect(at)
            return None
        self.record(step, answer, key)
        return answer

    def answer(self, step: str, connection: RawConnection, version: int, correlation_id: int) -> Any:
        """The awaited answer of the scenario's own API on another connection, recorded."""
        answer = connection.answer(self._row.api_key, version, correlation_id)
        self.record(step, answer)
        return answer

    def record(self, step: str, answer: Any, api: int | None = None) -> None:
        """Put down what was seen under the name `step`."""
        key = self._row.api_key if api is None else api
        where = Step(self._row.name, self.version, step, key)
        assert where not in self.cluster.answers, f"two steps are called {where}"
        self.cluster.answers[where] = self._labels.plain(answer)

    def quietly(self, api: int, body: Mapping[str, Any], *, version: int | None = None, at: int = 0) -> Any:
        """Ask without recording: how the ground is prepared, or awaited."""
        check_fields(api, body)
        return self._connection_to(at).ask(api, self.newest(api) if version is None else version, body)

    def post(self, api: int, version: int, body: Mapping[str, Any]) -> None:
        """Send a request that has no answer."""
        check_fields(api, body)
        self._connections[0].post(api, version, body)

    def connect(self, at: int = 0) -> RawConnection:
        """One more connection, for who asks while another request waits. The caller closes it."""
        connection = RawConnection(self.cluster.ports.get(at, self.port))
        connection._socket.settimeout(ANSWER_SECONDS_MAX)
        return connection

    def reconnect(self, at: int = 0) -> None:
        """A new connection in place of one that is of no use any more."""
        self._connections.pop(at).__exit__()
        self._connections[at] = self.connect(at)

    def _connection_to(self, at: int) -> RawConnection:
        if at not in self._connections:
            self._connections[at] = self.connect(at)
        return self._connections[at]

    def topic(self, what: str = "topic", *, partitions: int = 1, **config: str) -> TopicRef:
        """A topic of this run, created and ready; `config` has underscores for dots."""
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
        name = self.name(what)
        row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": configs}
        (created,) = self.quietly(CREATE_TOPICS, {"topics": [row], "timeout": 10_000}).topics
        assert created.error_code == 0, created
        self.know(name, created.topic_id)
        self.wait_readable(name, partitions)
        return TopicRef(name, created.topic_id.bytes)

    def know(self, name: str, topic_id: uuid.UUID) -> None:
        """Show the id of a topic as the topic's from now on."""
        self.cluster.topic_ids[topic_id] = name

    def know_directories(self, *paths: str) -> None:
        """Show log directories by numbers in this order, in whatever order answers have them."""
        for path in paths:
            self._labels.label("directory", path)

    def wait_readable(self, name: str, partitions: int = 1) -> None:
        """Wait until the leaders of all partitions are at work."""
        asked = [{"partition_index": index, "timestamp": -2} for index in range(partitions)]
        body = {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]}

        def are_ready(answer: Any) -> bool:
            return all(part.error_code == 0 for topic in answer.topics for part in topic.partitions)

        self.wait(LIST_OFFSETS, body, are_ready)

    def settle(self) -> None:
        """Wait until every change of metadata so far is known to the broker: the log of changes is in order."""
        self.settlements += 1
        self.topic(f"settled-{self.settlements}")

    def wait(
        self,
        api: int,
        body: Mapping[str, Any],
        is_there: Callable[[Any], bool],
        *,
        version: int | None = None,
    ) -> Any:
        """Ask quietly until the answer is as wanted; AssertionError when it never is."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            answer = self.quietly(api, body, version=version)
            if is_there(answer):
                return answer
            assert time.monotonic() < deadline, f"still {answer}"
            time.sleep(0.01)

    def coordinator(self) -> None:
        """Wait until every group has its coordinator: the topic behind them is made when it is first asked for."""
        if self.cluster.has_coordinators:
            return

        self.wait(
            10,
            {"key_type": 0, "coordinator_keys": ["any"]},
            lambda answer: not answer.coordinators[0].error_code,
        )
        # So many names fall into every partition of the topic.
        groups = [{"group_id": f"any-{number}", "topics": []} for number in range(600)]
        self.wait(9, {"groups": groups}, lambda answer: not any(row.error_code for row in answer.groups))
        self.cluster.has_coordinators = True


@dataclass(frozen=True)
class TopicRef:
    """A topic as requests name it."""

    name: str
    topic_id: bytes


UNKNOWN_TOPIC: Final = TopicRef("no-such-topic", bytes(15) + b"\x09")


@functools.cache
def _known_fields(api_key: int) -> frozenset[str]:
    low, high = version_range(api_key)
    return frozenset(
        name for version in range(low, high + 1) for name in _fields(load_request_schema(api_key, version))
    )


def _fields(schema: Any) -> Iterator[str]:
    hints = typing.get_type_hints(schema)
    for entry in dataclasses.fields(schema):
        yield entry.name
        for part in _parts(hints[entry.name]):
            if dataclasses.is_dataclass(part):
                yield from _fields(part)


def _parts(hint: Any) -> Iterator[Any]:
    """A type and all types in it: of `tuple[X, ...] | None` also X."""
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


def check_fields(api_key: int, body: Any) -> None:
    """A field that no version of the request has is a slip of the pen, not a field to leave out."""
    if isinstance(body, Mapping):
        strange = body.keys() - _known_fields(api_key)
        assert not strange, (
            f"API {api_key} has no field {sorted(strange)}, only {sorted(_known_fields(api_key))}"
        )
        for value in body.values():
            check_fields(api_key, value)
    elif isinstance(body, list | tuple):
        for value in body:
            check_fields(api_key, value)


HIDDEN: Final[Ranges] = {71: (0, 0), 72: (0, 0)}
"""Kafka shows the telemetry APIs only where a plugin takes the metrics (KIP-714), but answers them in any case."""


def advertised(port: int) -> Ranges:
    """The version ranges that a cluster shows to clients, and those that it is known to hide."""
    with RawConnection(port) as connection:
        answer = connection.ask(18, 4, SOFTWARE)
    assert answer.error_code is ErrorCode.none, answer
    return {**HIDDEN, **{row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}}


def shared_ranges(first: Ranges, second: Ranges) -> Ranges:
    """The versions that both have and that can be encoded at all."""
    shared = {}
    for key in sorted(first.keys() & second.keys()):
        low, high = version_range(key)
        shared[key] = max(first[key][0], second[key][0], low), min(first[key][1], second[key][1], high)
    return shared


def runs(ranges: Ranges, script: Sequence[Row] = SCENARIOS) -> Iterator[tuple[Row, int]]:
    """Each scenario with each version that it is played in."""
    for row in script:
        if row.api_key in ranges:
            low, high = ranges[row.api_key]
            for version in range(high if row.newest_only else low, high + 1):
                yield row, version


def play(
    cluster: Cluster,
    only: str = "",
    is_over: Callable[[], bool] = lambda: False,
    script: Sequence[Row] = SCENARIOS,
) -> None:
    """Run every scenario (or those whose name contains `only`) in every version; a fault in one ends only that run.

    `is_over` is asked before each run: once it says so, nobody waits for the rest. Raises OSError where the cluster
    takes no connections.
    """
    for row, version in runs(cluster.ranges, script):
        if only not in row.name:
            continue
        if is_over():
            return
        run = Run(cluster, row, version)
        try:
            row.function(run)
        except Exception as error:
            run.record("broken off", f"{type(error).__name__}: {error}"[:500])
        finally:
            run.close()
