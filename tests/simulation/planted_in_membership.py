"""Faults to be planted into what moves, comes, goes and is deleted: see `planted_faults`, which has them all."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from barnabas.controller.core.partition_change import PartitionChange
from barnabas.gateway.clients.fetch_sessions import FetchSession
from barnabas.log.moving.future_log import FutureLog
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.replica.leader_state import LeaderState
from barnabas.storage.replica.replicas import Replicas


def counted_as_in_sync(_: Any) -> Any:
    """Whoever is being added has what it takes, one might think: it was asked for some time ago."""

    def instead(self: PartitionChange) -> None:
        target = [replica for replica in self.replicas if replica not in self.removing]
        if any(replica in self.isr for replica in self.replicas):
            self.replicas, self.isr = target, list(target)
            self.adding, self.removing = [], []

    return instead


def goes_by_what_was_said_before(begin_epoch: Any) -> Any:
    """A leader knows its followers, one might think, and leads on."""

    def instead(self: LeaderState, *arguments: Any, **options: Any) -> None:
        followers, caught_up = dict(self._followers), set(self._caught_up)
        begin_epoch(self, *arguments, **options)
        self._followers |= {node: each for node, each in followers.items() if node in self._followers}
        self._caught_up |= caught_up & self._followers.keys()
        self._look()

    return instead


def by_its_name(follow: Any) -> Any:
    """Whoever has a partition of that name and number has it."""

    def instead(self: Replicas, topic_id: bytes, index: int, old: Any) -> None:
        topic = self.image.topics_by_id.get(topic_id)
        known = (
            [] if topic is None else [each for each in self.by_partition.values() if each.topic == topic.name]
        )
        for replica in known:
            if replica.index == index and self.find(topic_id, index) is None:
                del self.by_partition[replica.topic_id, index]
                replica.topic_id = topic_id
                self.by_partition[topic_id, index] = replica
        follow(self, topic_id, index, old)

    return instead


def nothing_is_removed(_: Any) -> Any:
    def instead(self: Replicas, replica: Any, *, is_order: bool) -> None:
        del is_order
        self._places.pop(replica)
        self._directories.release(replica.topic, replica.index)

    return instead


def sometimes_behind_the_next(handle: Any) -> Any:
    """What is appended overtakes what came before it, now and then."""
    chance, held = random.Random("behind the next"), []

    def release() -> None:
        while held:
            handle(*held.pop())

    def instead(self: AppendHandler, request: Any, answer: Any) -> None:
        if not held and chance.random() < 0.05:
            held.append((self, request, answer))
            asyncio.get_running_loop().call_later(0.005, release)
            return
        handle(self, request, answer)
        release()

    return instead


def only_what_is_new(update: Any) -> Any:
    """A session knows where its client reads, and need not be told again."""

    def instead(self: FetchSession, changed: Any, forgotten: Any) -> None:
        update(self, [each for each in changed if each.key not in self.partitions], forgotten)

    return instead


def what_was_copied_before(_: Any) -> Any:
    """When appends wait, all has been copied, one might think: three times it was seen that nothing was left."""

    def instead(self: FutureLog, _bytes_max: int) -> None:
        self._log.maybe_increment_log_start_offset(self._current.log_start_offset)
        self._log.take_over(self._current)

    return instead
