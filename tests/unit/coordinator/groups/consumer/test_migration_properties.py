"""Consumers of both protocols that come, go, are restarted with the other one, while coordinators die."""

from __future__ import annotations

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

ROUNDS_TO_SETTLE: Final = 50

starts = st.tuples(st.just("start"), st.booleans(), st.booleans())
steps = st.tuples(st.just("step"), st.integers(0, CLIENTS_MAX - 1), st.just(False))
restarts = st.tuples(st.just("restart"), st.integers(0, CLIENTS_MAX - 1), st.booleans())
leaves = st.tuples(st.just("leave"), st.integers(0, CLIENTS_MAX - 1), st.just(False))
waits = st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 4_000]), st.just(False))
others = st.tuples(st.sampled_from(["new coordinator", "more partitions"]), st.just(0), st.just(False))
changes = st.lists(
    st.one_of(*[steps] * 12, *[starts] * 2, *[waits] * 2, *[restarts] * 2, leaves, others),
    min_size=40,
    max_size=150,
)


class World:
    """A group, and the processes that are its members or want to be."""

    def __init__(self, classic: type[ClassicClient]) -> None:
        self.driver = MigrationDriver(t=PARTITIONS)
        self.classic = classic
        self.clients: list[MigratingClient] = []
        self.started = 0
        self.waited_ms = 0

    def do(self, change: str, number: int, flag: bool) -> None:
        client = self.clients[number % len(self.clients)] if self.clients else None
        match change:
            case "start" if len(self.clients) < CLIENTS_MAX:
                self._start(f"i{self.started}" if flag else None, is_newer=bool(number))
            case "wait" if self.waited_ms + number <= PATIENCE_MS:
                self.waited_ms += number
                self.driver.advance(number)
            case "new coordinator":
                self.driver.reload()
                for each in self.clients:
                    each.on_new_coordinator()
            case "more partitions":
                wanted = min(self.driver.partition_count(TOPIC) + 1, PARTITIONS_MAX)
                self.driver.create_topic(TOPIC, wanted)
            case "step" if client is not None:
                client.step()
            case "leave" if client is not None:
                self.clients.remove(client)
                client.leave()
            case "restart" if client is not None and client.instance is not None:
                self.clients.remove(client)
                client.stop()
                self._start(client.instance, is_newer=flag)

    def _start(self, instance: str | None, *, is_newer: bool) -> None:
        self.started += 1
        kind = NewerClient if is_newer else self.classic
        client = kind(self.driver, f"m{self.started}", instance)
        self.clients.append(client)
        client.step()

    def settle(self) -> None:
        for _ in range(ROUNDS_TO_SETTLE):
            for client in self.clients:
                client.step()
                self.readers()
            self.driver.advance(4_000)

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


@given(classic=st.sampled_from([EagerClient, CooperativeClient]), changes=changes)
@settings(max_examples=100)
def test_a_partition_has_one_reader_and_in_the_end_each_has_one(
    classic: type[ClassicClient], changes: list[tuple[str, int, bool]]
) -> None:
    world = World(classic)
    for change in changes:
        world.do(*change)
        world.readers()
    world.settle()
    if world.clients:
        assert set(world.readers()) == set(range(world.driver.partition_count(TOPIC)))
        joins = world.joins()
        world.settle()
        assert world.joins() == joins, "the group goes on rebalancing"
