"""Whatever the order in which things happen, no fetch waits for what is there.

Real purgatory, reader, cold reads and replicas; a log of lengths, and threads that the seed runs: a read in a thread
looks at its log at one moment and comes back at another. A seed replays exactly.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any, Final

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.links.storage_messages import PartitionFetched
from barnabas.log.config import LogConfig
from barnabas.log.flush_times import FlushTimes
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import FetchRequest, PartitionFetch
from barnabas.storage import limits
from barnabas.storage.counts import NodeCounts
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.fetching.reading import FetchReader
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.replica.followed import Followed
from barnabas.storage.replica.leader_state import LeaderState
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replica_reports import ReplicaReports
from barnabas.storage.replica.replication_quota import ReplicationQuota
from barnabas.storage.replica.topic_settings import TopicSettings

SIZE: Final = 10
"""Bytes of every record of the fake log; each is a batch of its own."""
UNKNOWN_SERVER_ERROR: Final = -1
LONG_MS: Final = 3_600_000
STEPS: Final = 60


class SeededThreads(Executor):
    """Work begins, and comes back, when the seed says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.done: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_one(self, chance: random.Random) -> None:
        if self.waiting:
            future, work = self.waiting.pop(chance.randrange(len(self.waiting)))
            if future.set_running_or_notify_cancel():
                self.done.append((future, work()))

    def deliver_one(self, chance: random.Random) -> None:
        if self.done:
            future, result = self.done.pop(chance.randrange(len(self.done)))
            future.set_result(result)


class Lane:
    """What a cold read needs of a log directory's lane."""

    def __init__(self, read: Executor) -> None:
        self.read = read
        self.late_reads = 0


class LengthLog:
    """A log of which only the length is known; some reads of it would have to wait for the disk."""

    log_start_offset = 0
    segments = ()
    generation = 0
    is_closed = False
    is_trusted = True

    def __init__(self, *, is_cold: bool) -> None:
        self.log_end_offset = 0
        self.is_cold = is_cold
        self.open_from: int | None = None
        """Where the transaction begins that is open."""
        self.ended: list[tuple[int, int]] = []
        """(first offset, the marker's) of those that are not."""

    def append(self, count: int, *, is_transactional: bool) -> None:
        if is_transactional and self.open_from is None:
            self.open_from = self.log_end_offset
        elif is_transactional and self.open_from is not None:
            self.ended.append((self.open_from, self.log_end_offset + count - 1))
            self.open_from = None
        self.log_end_offset += count

    def last_stable_offset(self, high_watermark: int) -> int:
        undecided = [first for first, marker in self.ended if marker >= high_watermark]
        return min([high_watermark, *undecided, *([] if self.open_from is None else [self.open_from])])

    def locate(self, offset: int, max_bytes: int, *, upper_bound_offset: int, nowait: bool, **_: Any) -> Any:
        if nowait and self.is_cold:
            raise BlockingIOError
        records = bytes(SIZE * (upper_bound_offset - offset))
        return SimpleNamespace(
            length=len(records), read=lambda nowait: records, end_offset=1 << 60, generation=0
        )

    def aborted_transactions(self, *_: Any, **__: Any) -> list[Any]:
        return []


class Node:
    """Two partitions, of which one appears late, and a peer that fetches."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.durable: dict[int, int] = {}
        """What is on disk of each log: syncs are the seed's as well."""
        self.last_id = 0
        self.threads = SeededThreads()
        self.lane: Any = Lane(self.threads)
        self.purgatory = FetchPurgatory()
        self.counts = NodeCounts(FlushTimes())
        self.topic_id = uuid.UUID(int=seed).bytes
        self.partitions: dict[int, Replica] = {}
        replicas: Any = SimpleNamespace(
            find=lambda _, index: self.partitions.get(index), absence=lambda *_: 3, counts=self.counts
        )
        reader = FetchReader(replicas, bytes_max=1 << 20)
        handler = FetchHandler(reader, self.purgatory, self.counts)
        self.answers: set[int] = set()
        self.requests: dict[int, FetchRequest] = {}
        self.hurried: set[int] = set()
        self.fetches = handler.take_from_peer(self.on_answer, self.wait_for_room, is_client=True)
        self.add_partition(0)

    def on_answer(self, request: FetchRequest, partitions: Sequence[PartitionFetched], _: int) -> None:
        assert request.correlation_id not in self.answers, "answered twice"
        assert request.correlation_id in self.requests, "answered though withdrawn"
        assert UNKNOWN_SERVER_ERROR not in [each.fields.error_code for each in partitions]
        self.answers.add(request.correlation_id)

    async def wait_for_room(self) -> None:
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)

    def add_partition(self, index: int) -> None:
        replica = Replica(
            "events",
            self.topic_id,
            index,
            internal=False,
            node_id=1,
            settings=TopicSettings(LogConfig()),
            counts=self.counts.add_partition("events"),
            purgatory=self.purgatory,
            clock=ManualClock(0),
            refused=RefusedSequences(ManualClock(0).monotonic),
            followed=Followed(1_000, ReplicationQuota(11, 1_000)),
            reports=ReplicaReports(1),
        )
        any_replica: Any = replica
        any_replica.log = LengthLog(is_cold=self.chance.random() < 0.5)
        any_replica.lane = self.lane
        any_replica._durability = SimpleNamespace(
            acknowledgeable=lambda end: min(end, self.durable.get(index, 0)),
            on_append=lambda _: None,
            stop=lambda: None,
            fail=lambda _: None,
        )
        record = PartitionRecord(leader=1, leader_epoch=0, replicas=[1], isr=[1])
        replica.leader = LeaderState(1, record, log_end_offset=0, min_insync_replicas=1, now_ms=0)
        replica.leader_epoch = replica.error = 0
        self.partitions[index] = replica

    # -- what happens --------------------------------------------------------------------------------------------

    def append(self) -> None:
        index, replica, log = self.some_partition()
        count = self.chance.randint(1, 2)
        log.append(count, is_transactional=self.chance.random() < 0.3)
        if self.chance.random() < 0.7:
            self.durable[index] = log.log_end_offset
        replica.on_appended(log.log_end_offset, SIZE * count)

    def sync(self) -> None:
        index, replica, log = self.some_partition()
        self.durable[index] = self.chance.randint(self.durable.get(index, 0), log.log_end_offset)
        replica.advance_high_watermark()

    def change_temperature(self) -> None:
        log = self.some_partition()[2]
        log.is_cold = not log.is_cold

    def change_leader_epoch(self) -> None:
        replica = self.some_partition()[1]
        replica.leader_epoch += 1
        replica._complete_watchers()

    def some_partition(self) -> tuple[int, Replica, Any]:
        index = self.chance.choice(sorted(self.partitions))
        return index, self.partitions[index], self.partitions[index].log

    def fetch(self) -> None:
        self.last_id += 1
        request = FetchRequest(
            correlation_id=self.last_id,
            min_bytes=self.chance.choice((1, SIZE, 3 * SIZE, 4 * SIZE)),
            max_bytes=1 << 20,
            max_wait_ms=LONG_MS,
            isolation_level=self.chance.choice((0, 1)),
        )
        for index in self.chance.sample(
            sorted(self.partitions), self.chance.randint(1, len(self.partitions))
        ):
            replica = self.partitions[index]
            request.partitions.append(
                PartitionFetch(
                    topic_id=self.topic_id,
                    partition=index,
                    fetch_offset=max(replica.high_watermark - self.chance.choice((0, 0, 1, 2)), 0),
                    max_bytes=1 << 20,
                    current_leader_epoch=self.chance.choice((-1, replica.leader_epoch)),
                    last_fetched_epoch=-1,
                )
            )
        self.requests[request.correlation_id] = request
        self.fetches.take(request)

    def hurry(self) -> None:
        if self.unanswered():
            key = self.chance.choice(self.unanswered())
            self.hurried.add(key)
            self.fetches.hurry(key)

    def withdraw(self) -> None:
        if self.unanswered():
            key = self.chance.choice(self.unanswered())
            self.fetches.withdraw(key)
            del self.requests[key]

    def unanswered(self) -> list[int]:
        return [key for key in self.requests if key not in self.answers]

    async def step(self) -> None:
        often: list[Callable[[], None]] = [
            self.append,
            self.append,
            self.sync,
            self.fetch,
            lambda: self.threads.run_one(self.chance),
            lambda: self.threads.deliver_one(self.chance),
        ]
        seldom: list[Callable[[], None]] = [
            self.change_temperature,
            self.change_leader_epoch,
            self.hurry,
            self.withdraw,
            lambda: self.partitions.get(1) or self.add_partition(1),  # type: ignore[func-returns-value]
        ]
        self.chance.choice(often if self.chance.random() < 0.8 else seldom)()
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Everything that was begun comes to its end, and nothing new begins."""
        quiet = 0
        while quiet < 20:
            busy = bool(self.threads.waiting or self.threads.done)
            self.threads.run_one(self.chance)
            self.threads.deliver_one(self.chance)
            await asyncio.sleep(0)
            quiet = 0 if busy else quiet + 1

    def check(self) -> None:
        for key in self.unanswered():
            assert key not in self.hurried, "hurried and not answered"
            request = self.requests[key]
            size_bytes = 0
            for item in request.partitions:
                replica = self.partitions[item.partition]
                assert not replica.check_epoch(item.current_leader_epoch), "an error that is not told"
                bound = replica.last_stable_offset if request.isolation_level else replica.high_watermark
                size_bytes += SIZE * max(bound - item.fetch_offset, 0)
            assert size_bytes < request.min_bytes, "it waits for what is there"
        assert len(self.purgatory) == len(self.unanswered())


@pytest.mark.parametrize("first_seed", range(0, 800, 200))
async def test_nothing_that_is_there_is_waited_for(first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COLD_READ_MS_MAX", LONG_MS)  # what is late depends on the machine
    for seed in range(first_seed, first_seed + 200):
        node = Node(seed)
        serving = asyncio.create_task(node.fetches.serve_woken())
        try:
            for _ in range(STEPS):
                await node.step()
            await node.settle()
            node.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            node.fetches.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
