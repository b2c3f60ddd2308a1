"""A clock that jumps: retention deletes what is too old by it, as in Kafka, and no more than that."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from storage_harness import NOW_MS, StorageHarness, make_upkeep, run_node, topic_config

from barnabas.records.record import encode_batch

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
HOURS_AGO: Final = (3, 2, 1, 0)
"""When the one record of each segment was made; the last segment is the active one."""

KEPT: Final = {
    "forever": {"retention_ms": "-1"},
    "week": {},  # log.retention.hours of the cluster
    "compacted": {"cleanup_policy": "compact", "retention_ms": str(DAY_MS)},
}
"""Topics of which a jump by a day deletes nothing."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        yield harness


async def fill(node: StorageHarness, name: str, **settings: str) -> uuid.UUID:
    """A topic with a segment for each of HOURS_AGO."""
    topic = await node.create_topic(name)
    node.apply(topic_config(name, **settings))
    log = node.replica(topic).log
    assert log is not None
    for hours in HOURS_AGO:
        if log.log_end_offset:
            log.roll()
        records = encode_batch([(NOW_MS - hours * HOUR_MS, b"key", b"value", ())])
        assert (await node.append(topic, records)).error_code == 0
    return topic


def bounds(node: StorageHarness, topic: uuid.UUID) -> tuple[list[int], int]:
    """Where each segment begins, and where the log ends."""
    log = node.replica(topic).log
    assert log is not None
    return list(log.segment_base_offsets), log.log_end_offset


async def test_a_jump_forward_deletes_what_is_too_old_by_then_and_nothing_else(node: StorageHarness) -> None:
    day = await fill(node, "day", retention_ms=str(DAY_MS))
    kept = [await fill(node, name, **settings) for name, settings in KEPT.items()]
    upkeep = make_upkeep(node)
    assert await upkeep.apply_retention() == 0
    node.clock.advance(22 * HOUR_MS + 1)
    assert await upkeep.apply_retention() == 2, "of what is a day old or less nothing"
    assert bounds(node, day) == ([2, 3], 4)
    assert (await node.fetch(day, 2)).log_start_offset == 2
    node.clock.advance(DAY_MS)
    assert await upkeep.apply_retention() == 2, "also the active segment, all of which is too old"
    assert bounds(node, day) == ([4], 4)
    assert await upkeep.apply_retention() == 0
    for topic in kept:
        assert bounds(node, topic) == ([0, 1, 2, 3], 4)
        assert (await node.fetch(topic, 0)).error_code == 0


async def test_a_jump_back_deletes_nothing(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock was ahead before: what was deleted then is all that is gone."""
    day = await fill(node, "day", retention_ms=str(DAY_MS))
    kept = [await fill(node, name, **settings) for name, settings in KEPT.items()]
    upkeep = make_upkeep(node)

    def set_clock(now_ms: int) -> None:
        monkeypatch.setattr(node.clock, "now_ms", lambda: now_ms)  # it goes forward only by itself

    set_clock(NOW_MS - 10 * DAY_MS)
    assert await upkeep.apply_retention() == 0
    assert bounds(node, day) == ([0, 1, 2, 3], 4)
    set_clock(NOW_MS + 22 * HOUR_MS + 1)
    assert await upkeep.apply_retention() == 2
    for now_ms in (NOW_MS, NOW_MS - 10 * DAY_MS):
        set_clock(now_ms)
        assert await upkeep.apply_retention() == 0
        assert bounds(node, day) == ([2, 3], 4)
    for topic in kept:
        assert bounds(node, topic) == ([0, 1, 2, 3], 4)
