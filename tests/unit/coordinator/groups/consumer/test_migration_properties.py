"""Consumers of both protocols that come, go, are restarted with the other one, while coordinators die."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from migrating_clients import (
    TOPIC,
    ClassicClient,
    CooperativeClient,
    EagerClient,
    MigratingClient,
    NewerClient,
)
from migration_driver import MigrationDriver

PARTITIONS: Final = 6
PARTITIONS_MAX: Final = 9
CLIENTS_MAX: Final = 5

PATIENCE_MS: Final = 38_000
"""Nobody is silent for longer, so nobody's session ends while it reads."""

ROUNDS_TO_BEGIN: Final = 5
ROUNDS_TO_SETTLE: Final = 50

WAITS_MS: Final = (1, 1_000, 4_000)

KINDS: Final = {
    "step": 10,
    "round": 3,
    "start": 3,
    "wait": 2,
    "restart": 2,
    "leave": 1,
    "new coordinator": 1,
    "more partitions": 1,
}
"""How often each comes up. (`one_of` drops strategies that it has already, so that it cannot say so.)"""

changes = st.lists(
    st.tuples(
        st.sampled_from([kind for kind, often in KINDS.items() for _ in range(often)]),
        st.integers(0, 2 * CLIENTS_MAX - 1),
        st.booleans(),
    ),
    min_size=20,
    max_size=80,
)


class World:
    """A group, and the processes that are its members or want to be."""

    def __init__(
        self, classic: type[ClassicClient], at_first: Iterable[bool] = (), *, grows: bool = False
    ) -> None:
        """`at_first` are members of the classic protocol that have settled, and whether each is a static one.

        Where the topic grows, no static member comes back with the classic protocol: it may lead and not know it, or
        not know of how many partitions its assignment was, so that nobody sees that there are more; in Kafka, too.
        """
        self.driver = MigrationDriver(t=PARTITIONS)
        self.classic = classic
        self.grows = grows
        self.clients: list[MigratingClient] = []
        self.started = 0
        self.silent_ms: dict[MigratingClient, int] = {}
        for is_static in at_first:
            self._start(f"i{self.started}" if is_static else None, is_newer=False)
        self._rounds(ROUNDS_TO_BEGIN)

    def do(self, change: str, number: int, flag: bool) -> None:
        client = self.clients[number % len(self.clients)] if self.clients else None
        match change:
            case "start" if len(self.clients) < CLIENTS_MAX:
                self._start(f"i{self.started}" if flag else None, is_newer=bool(number % 2))
            case "wait":
                self._wait(WAITS_MS[number % len(WAITS_MS)])
            case "round":
                for each in self.clients[:: -1 if flag else 1]:
                    self._step(each)
                self._wait(WAITS_MS[number % len(WAITS_MS)])
            case "new coordinator":
                self.driver.reload()
                for each in self.clients:
                    each.on_new_coordinator()
            case "more partitions" if self.grows:
                wanted = min(self.driver.partition_count(TOPIC) + 1, PARTITIONS_MAX)
                self.driver.create_topic(TOPIC, wanted)
            case "step" if client is not None:
                self._step(client)
            case "leave" if client is not None:
                self.clients.remove(client)
                client.leave()
            case "restart" if client is not None and client.instance is not None:
                self.clients.remove(client)
                client.stop()
                self._start(client.instance, is_newer=flag or self.grows)

    def _start(self, instance: str | None, *, is_newer: bool) -> None:
        self.started += 1
        kind = NewerClient if is_newer else self.classic
        client = kind(self.driver, f"m{self.started}", instance)
        self.clients.append(client)
        self._step(client)

    def _step(self, client: MigratingClient) -> None:
        client.step()
        self.silent_ms[client] = 0
        self.readers()

    def _wait(self, wanted_ms: int) -> None:
        if all(self.silent_ms[each] + wanted_ms <= PATIENCE_MS for each in self.clients):
            for each in self.clients:
                self.silent_ms[each] += wanted_ms
            self.driver.advance(wanted_ms)

    def settle(self) -> None:
        self._rounds(ROUNDS_TO_SETTLE)

    def _rounds(self, count: int) -> None:
        for _ in range(count):
            for client in self.clients:
                self._step(client)
            self._wait(4_000)

    def readers(self) -> dict[int, str]:
        """Who reads each partition; fails where two do."""
        found: dict[int, str] = {}
        for client in self.clients:
            for partition in client.reading:
                assert partition not in found, f"{partition} is read by {found[partition]} and {client.name}"
                found[partition] = client.name
        return found

    def joins(self) -> int:
        return sum(client.joins for client in self.clients if isinstance(client, ClassicClient))


@given(
    classic=st.sampled_from([EagerClient, CooperativeClient, CooperativeClient]),
    at_first=st.lists(st.booleans(), max_size=3),
    grows=st.booleans(),
    changes=changes,
)
@settings(max_examples=100)
def test_a_partition_has_one_reader_and_in_the_end_each_has_one(
    classic: type[ClassicClient], at_first: list[bool], grows: bool, changes: list[tuple[str, int, bool]]
) -> None:
    world = World(classic, at_first, grows=grows)
    for change in changes:
        world.do(*change)
        world.readers()
    world.settle()
    if world.clients:
        assert set(world.readers()) == set(range(world.driver.partition_count(TOPIC)))
        joins = world.joins()
        world.settle()
        assert world.joins() == joins, "the group goes on rebalancing"
        assert all(client.is_member for client in world.clients), "somebody waits for an answer"
