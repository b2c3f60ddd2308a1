"""Markers of transactions that were being told when their log was read again."""

from __future__ import annotations

import asyncio

import pytest
from log_in_memory import LogInMemory
from transaction_node import TransactionNode, a_world, running, settle


async def open_and_end(node: TransactionNode, transactional_id: str) -> int:
    """As by a producer whose epoch stays the same; its id."""
    producer_id = int((await node.init(transactional_id)).split("/")[0])
    asked = {"transactional_id": transactional_id, "producer_id": producer_id}
    assert await node.add("t-0", version=0, **asked) == "none"  # type: ignore[arg-type]
    await node.end(transactional_id, producer_id, version=0)
    return producer_id


async def test_what_is_complete_before_its_turn_comes_is_not_told_again(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many are given out again, and one of the last is answered for meanwhile as it was sent before. A marker that came
    then would end the next transaction of its producer."""
    monkeypatch.setattr("barnabas.coordinator.limits.MARKING_YIELD_PARTITIONS", 1)
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    ids = [f"id-{number}" for number in range(60)]
    async with running(node):
        *_, last = [await open_and_end(node, each) for each in ids]
        await settle()
        assert len(node.post.sent) == len(ids)
        log.ends[0] += 1  # not where the coordinator expects it: it reads the log again
        await node.init("another")
        while len(node.post.sent) < len(ids) + 3:
            await asyncio.sleep(0)
        node.post.thaw("1")
        asked = {"transactional_id": ids[-1], "producer_id": last}
        while await node.add("t-0", version=0, **asked) != "none":  # type: ignore[arg-type]
            await asyncio.sleep(0)
        assert len(node.post.sent) < 2 * len(ids), "others are still to be begun"
        for _ in range(3):
            await settle()
        assert await node.describe(ids[-1]) == "Ongoing t-0"
        assert [marker.producer_id for _, _, marker in node.post.sent].count(last) == 1
        assert list(node.coordinator.markers.waiting()) == []
