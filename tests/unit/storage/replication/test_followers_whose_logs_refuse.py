"""A follower whose log cannot be written although its disk can: its leader hears of it, and so does the controller."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Sequence

import pytest
from scripted_leader import Follower, fill, records, until

from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.controller_pb2 import ReplicaReport
from barnabas.storage import limits
from barnabas.storage.replica.refusing_logs import RefusingLogs


@pytest.mark.parametrize("number", [errno.EUCLEAN, errno.ENOENT, errno.EISDIR])
async def test_it_is_said_reported_and_taken_back(
    follower: Follower, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "REFUSAL_APART_SECONDS", 0.0)
    monkeypatch.setattr(limits, "QUIET_SECONDS_MIN", 0.0)
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 2)
    node, replica = follower.node, follower.replica(topic)
    told: list[tuple[bool, bool]] = []

    async def tell(reports: Sequence[ReplicaReport]) -> str:
        told.extend((each.offline, each.refuses_writes) for each in reports)
        return ""

    async def refuse(times: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(SegmentFile, "write", refused)
            for _ in range(times):
                count = len(stream.heard)
                stream.tell(records(replica.end_offset), high_watermark=3)
                await until(lambda count=count: len(stream.heard) > count)  # type: ignore[misc]

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    watching = RefusingLogs(node.replicas, node.lanes, node.clock, node.files)
    tasks = [asyncio.create_task(watching.run()), asyncio.create_task(node.replicas.reports.run(tell))]
    try:
        await refuse(limits.REFUSALS_MIN - 1)
        assert stream.heard[-1].disk_refuses
        await fill(follower, topic, stream, 1)
        await refuse(limits.REFUSALS_MIN - 1)
        assert not replica.appending.is_handed_over, "only refusals in a row count"
        await refuse(1)
        await until(lambda: told == [(True, True)])
        said = [each for each in caplog.records if "cannot append to one partition" in each.getMessage()]
        assert [each.fields["partition"] for each in said] == [replica.name]  # type: ignore[attr-defined]
        for _ in range(20):
            node.clock.advance(1_000)
            await asyncio.sleep(0.001)
        assert replica.appending.is_handed_over, "it may only rest between two tries"
        await fill(follower, topic, stream, 2)
        async with asyncio.timeout(20):
            while replica.appending.is_handed_over:
                node.clock.advance(1_000)
                await asyncio.sleep(0.001)
        assert not replica.is_offline
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
