"""Under flush.messages the end of a log that a crash left counts once it was synced, whoever leads."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.log.segments.segment_file import SegmentFile


async def test_what_a_crash_left_unsynced_is_not_committed_before_it_is_synced(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = batch(b"a", producer_id=3, producer_epoch=0, base_sequence=0)
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place, crash=True) as node:
        topic = await node.create_topic()
        await node.append(topic, sent)  # the process ends before its sync would

    real = SegmentFile.sync

    def sync(file: SegmentFile) -> None:
        assert go.wait(20)
        real(file)

    monkeypatch.setattr(SegmentFile, "sync", sync)
    async with run_node(*place) as node:
        node.snapshot(
            *topic_records("events", topic, leader_epoch=1), topic_config("events", flush_messages="1")
        )
        await node.until_open()
        replica = node.replica(topic)
        assert replica.is_leader
        again = [asyncio.create_task(node.append(topic, sent, acks=acks)) for acks in (-1, 1)]
        await _until_taken(node, 2)
        early = [each for each in again if each.done()]
        go.set()
        assert not early, "a power cut would take it"
        for result in await asyncio.gather(*again):
            assert (result.error_code, result.base_offset) == (0, 0)
        assert replica.high_watermark == 1


async def _until_taken(node: StorageHarness, appends: int) -> None:
    counts = node.replicas.counts
    async with asyncio.timeout(20):
        while counts.topics["events"].appends < appends:
            await asyncio.sleep(0)
    await asyncio.sleep(0.05)  # an answer has its way to go
