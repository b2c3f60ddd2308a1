"""What is behind a batch that failed, of all that one connection has under way."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from barnabas.gateway.clients.unsettled import Partition, Unsettled
from barnabas.messages.storage_pb2 import PartitionAppend

P, Q = (PartitionAppend(topic_id=b"t" * 16, partition=number) for number in (0, 1))


class Sends:
    """What is under way, by its order, and what each was told when it was settled."""

    def __init__(self) -> None:
        self.unsettled = Unsettled()
        self.told: dict[int, list[int]] = {}
        self._results: dict[int, asyncio.Future[None]] = {}

    def add(self, order: int, *partitions: PartitionAppend) -> None:
        def settle(behind: Container[Partition]) -> None:
            self.told[order] = [
                each.partition for each in partitions if (each.topic_id, each.partition) in behind
            ]

        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._results[order] = result
        self.unsettled.add(result, settle, "node", "metadata", partitions, order)

    def settle(self, order: int) -> list[int]:
        """The partitions in which it is behind something that failed."""
        self._results[order].set_result(None)
        self.unsettled.settle(self._results[order])
        return self.told[order]

    def fail(self, order: int, *partitions: PartitionAppend) -> None:
        self.settle(order)
        self.unsettled.on_failed(partitions, order)


async def test_what_was_under_way_behind_it_and_nothing_else() -> None:
    sends = Sends()
    for order in (1, 2, 3):
        sends.add(order, P)
    sends.fail(2, P)
    sends.add(4, P)  # the failed one, again, and what follows on it
    assert (sends.settle(1), sends.settle(3), sends.settle(4)) == ([], [0], [])


async def test_only_in_its_partition() -> None:
    sends = Sends()
    sends.add(1, P)
    sends.add(2, P, Q)
    sends.add(3, Q)
    sends.fail(1, P)
    assert (sends.settle(2), sends.settle(3)) == ([0], [])


async def test_behind_several() -> None:
    sends = Sends()
    sends.add(1, P)
    sends.add(2, Q)
    sends.add(3, P, Q)
    sends.fail(1, P)
    sends.fail(2, Q)
    assert sends.settle(3) == [0, 1]


async def test_what_was_handed_over_before_an_earlier_one_was_sent_on_is_behind_that() -> None:
    sends = Sends()
    for order in (1, 2, 3):
        sends.add(order, P)
    assert sends.settle(1) == []
    sends.add(1, P)  # it was refused, and is sent on in its place
    sends.fail(1, P)
    assert (sends.settle(2), sends.settle(3)) == ([0], [0])


async def test_what_is_behind_a_failed_one_is_not_forgotten_with_others() -> None:
    sends = Sends()
    sends.add(1, P)
    sends.add(2, P)
    sends.fail(1, P)
    sends.add(3, Q)
    for order in range(4, 200):
        another = PartitionAppend(topic_id=b"t" * 16, partition=order)
        sends.add(order, another)
        sends.fail(order, another)
    assert sends.settle(2) == [0]


async def test_a_later_one_that_fails_as_well_lets_nothing_pass_that_is_behind_the_first() -> None:
    sends = Sends()
    for order in (1, 2, 3):
        sends.add(order, P)
    sends.fail(1, P)
    sends.add(4, P)
    sends.add(5, P)
    sends.fail(3, P)
    assert (sends.settle(2), sends.settle(5)) == ([0], [0])


async def test_nothing_is_remembered_when_nothing_is_under_way() -> None:
    sends = Sends()
    sends.add(1, P)
    sends.add(2, P)
    sends.fail(1, P)
    sends.settle(2)
    assert not sends.unsettled._failed
    sends.add(3, P)
    sends.fail(3, P)
    assert not sends.unsettled._failed
    sends.add(4, P)
    sends.add(5, P)
    sends.fail(4, P)
    sends.unsettled.clear()
    assert not sends.unsettled._failed


async def test_of_what_nothing_is_behind_any_more_little_is_remembered() -> None:
    """Where something is always under way."""
    sends = Sends()
    sends.add(0, P)
    for order in range(1, 1_000):
        part = PartitionAppend(topic_id=b"t" * 16, partition=order)
        sends.add(order, part)
        sends.fail(order - 1, PartitionAppend(topic_id=b"t" * 16, partition=order - 1))
        assert len(sends.unsettled._failed) <= 65
