"""A node that follows, against a leader whose every word the test gives."""

from __future__ import annotations

import asyncio
import errno
import itertools
import uuid
from typing import Any

import pytest
from leader_and_followers import node_record
from scripted_leader import FOLLOWER, LEADER, Follower, epochs, fill, records, until

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.record import encode_batch
from barnabas.storage.metrics import StorageCollector
from barnabas.storage.replica import followed
from barnabas.storage.replica.replication_quota import ReplicationQuota


async def test_records_come_as_they_are(follower: Follower) -> None:
    topic = await follower.create(epoch=3)
    stream = await follower.network.stream()
    await stream.until_heard(3, 0, -1, 0)
    assert stream.identity is not None
    assert stream.address == "two"
    assert (stream.identity.node_id, stream.identity.broker_epoch) == (FOLLOWER, 10)
    assert (stream.identity.partition_bytes_max, stream.identity.response_bytes_max) == (1 << 20, 10 << 20)
    data = records(0, 2, epoch=1) + records(2, 3, epoch=3)
    stream.tell(data, high_watermark=1, log_end_offset=5)
    await stream.until_heard(3, 5, 3, 0)
    replica = follower.replica(topic)
    assert replica.log is not None
    assert replica.log.read(0, 1 << 20) == data
    assert (epochs(follower, topic), replica.high_watermark) == (((1, 0), (3, 2)), 1)
    assert follower.node.replicas.counts.replicated_bytes_in == len(data)
    assert len(stream.heard) == 2


async def test_news_need_no_other_position(follower: Follower) -> None:
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    stream.tell(records(0, 4), high_watermark=0)
    await stream.until_heard(0, 4)
    replica = follower.replica(topic)
    for high_watermark, expected in ((2, 2), (1, 2), (3, 3), (9, 4)):
        stream.tell(high_watermark=high_watermark)
        await until(lambda expected=expected: replica.high_watermark == expected)  # type: ignore[misc]
    await asyncio.sleep(0.01)
    assert (replica.high_watermark, len(stream.heard)) == (4, 2)
    stream.tell(high_watermark=4, log_start_offset=3)
    await stream.until_heard(0, 4, 0, 3)
    assert len(stream.heard) == 3


async def test_waiting_consumers_see_what_is_committed(follower: Follower) -> None:
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    stream.tell(records(0, 4), high_watermark=2)
    await stream.until_heard(0, 4)
    grown: list[int] = []
    replica = follower.replica(topic)
    replica.watchers[None] = 0  # type: ignore[index]
    follower.node.purgatory.on_growth = lambda _, size: grown.append(size)  # type: ignore[method-assign]
    stream.tell(high_watermark=4)
    await until(lambda: replica.high_watermark == 4)
    replica.watchers.clear()
    assert len(grown) == 1
    assert grown[0] >= len(records(2, 2))


async def test_what_waits_goes_out_together(follower: Follower) -> None:
    await follower.create(partitions=30)
    first = await follower.network.stream(1)
    await until(lambda: len(first.heard) == 30)
    first.break_off()
    second = await follower.network.stream(2)
    await until(lambda: second.heard)
    assert [len(frame) for frame in second.frames] == [30]


async def test_answers_to_other_positions_are_dropped(follower: Follower) -> None:
    topic = await follower.create(epoch=3)
    stream = await follower.network.stream()
    await stream.until_heard(3, 0)
    first = stream.heard[-1]
    await fill(follower, topic, stream, 2)
    stream.tell(records(0, 5), to=first)
    for leader_epoch in (2, 4):
        stream.tell(records(2), leader_epoch=leader_epoch, high_watermark=9)
        stream.tell(leader_epoch=leader_epoch, error_code=int(ErrorCode.fenced_leader_epoch))
        stream.tell(leader_epoch=leader_epoch, diverging=(0, 1))
    stream.tell(records(2), high_watermark=2)
    await stream.until_heard(3, 3)
    stream.tell(records(2), to=stream.heard[-2])
    stream.tell(records(3))
    await stream.until_heard(3, 4)
    assert follower.replica(topic).high_watermark == 2


async def test_an_unknown_partition_in_an_answer_is_nobodys(follower: Follower) -> None:
    await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    stream.tell(records(0), topic_id=uuid.uuid4().bytes)
    stream.tell(records(0), partition=7)
    stream.tell(records(0))
    await stream.until_heard(0, 1)


# -- truncation -------------------------------------------------------------------------------------------------


async def test_what_the_leader_does_not_have_is_taken_back_step_by_step(follower: Follower) -> None:
    topic = await follower.create(epoch=6)
    stream = await follower.network.stream()
    await stream.until_heard(6, 0)
    data = records(0, 4, epoch=1) + records(4, 2, epoch=3) + records(6, 2, epoch=5)
    stream.tell(data, high_watermark=2)
    await stream.until_heard(6, 8, 5)
    stream.tell(diverging=(4, 7), high_watermark=8)
    await stream.until_heard(6, 6, 3)
    stream.tell(diverging=(2, 5), high_watermark=8)
    await stream.until_heard(6, 4, 1)
    assert follower.replica(topic).high_watermark == 2
    await fill(follower, topic, stream, 1, epoch=6)
    assert epochs(follower, topic) == ((1, 0), (6, 4))


async def test_a_log_behind_its_leaders_start_begins_anew(follower: Follower) -> None:
    """KAFKA-9491: and may lead at once."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 3)
    code = int(ErrorCode.offset_out_of_range)
    stream.tell(error_code=code, log_start_offset=105, log_end_offset=200, high_watermark=-1)
    await stream.until_heard(0, 105, -1, 105)
    replica = follower.replica(topic)
    assert replica.high_watermark == 105
    # The leader's log begins in the midst of this batch.
    values = [(1, None, b"v", ())] * 10
    stream.tell(
        encode_batch(values, base_offset=100, partition_leader_epoch=0),
        high_watermark=107,
        log_start_offset=105,
        log_end_offset=110,
    )
    await stream.until_heard(0, 110, 0, 105)
    assert replica.high_watermark == 107
    assert replica.log is not None
    assert replica.log.segment_base_offsets == (100,)


async def test_a_leader_that_lost_its_end_is_followed_there(follower: Follower) -> None:
    """KAFKA-7414: only after an unclean election does the high watermark go back."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 9)
    code = int(ErrorCode.offset_out_of_range)
    stream.tell(error_code=code, log_start_offset=0, log_end_offset=4, high_watermark=-1)
    await stream.until_heard(0, 4)
    assert follower.replica(topic).high_watermark == 4
    await fill(follower, topic, stream, 2)


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.alone
async def test_an_error_is_followed_by_a_rest(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await follower.create()
    stream = await follower.network.stream()
    loop = asyncio.get_running_loop()
    pauses = []
    for count in range(1, 5):
        await until(lambda count=count: len(stream.heard) == count)  # type: ignore[misc]
        began = loop.time()
        stream.tell(error_code=int(ErrorCode.unknown_leader_epoch))
        await until(lambda count=count: len(stream.heard) > count)  # type: ignore[misc]
        pauses.append(loop.time() - began)
    for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.4), strict=True):
        assert pause >= least * 0.9
    assert caplog.text.count("a follower tries again") == 1
    stream.tell(records(0))
    await stream.until_heard(0, 1)
    began = loop.time()
    stream.tell(error_code=int(ErrorCode.unknown_leader_epoch))
    await until(lambda: len(stream.heard) == 7)
    assert loop.time() - began < 0.2


async def test_a_damaged_batch_is_asked_for_again(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    damaged = bytearray(records(0, 2))
    damaged[-1] ^= 1
    for count in (1, 2, 3):
        await until(lambda count=count: len(stream.heard) == count)  # type: ignore[misc]
        stream.tell(bytes(damaged), high_watermark=2)
    await until(lambda: len(stream.heard) == 4)
    assert caplog.text.count("a follower tries again") == 1
    assert any("CRC" in str(vars(line)) for line in caplog.records)
    replica = follower.replica(topic)
    assert replica.log is not None
    assert (replica.log.log_end_offset, replica.high_watermark, replica.error != 0) == (0, 0, True)
    await fill(follower, topic, stream, 2)


async def test_a_fenced_epoch_ends_it_until_the_next(follower: Follower) -> None:
    topic = await follower.create(epoch=1)
    stream = await follower.network.stream()
    await stream.until_heard(1, 0)
    stream.tell(error_code=int(ErrorCode.fenced_leader_epoch))
    await until(lambda: follower.replica(topic).following.has_failed)
    follower.lead(topic, LEADER, 1)  # nothing new
    await asyncio.sleep(0.1)
    assert follower.replica(topic).following.has_failed
    assert len(stream.heard) == 1
    follower.lead(topic, LEADER, 2)
    await stream.until_heard(2, 0)
    assert not follower.replica(topic).following.has_failed


async def test_records_that_do_not_continue_the_log_end_it(follower: Follower) -> None:
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 5)
    stream.tell(records(2, 9), high_watermark=11)
    await until(lambda: follower.replica(topic).following.has_failed)
    replica = follower.replica(topic)
    assert replica.log is not None
    assert (replica.log.log_end_offset, replica.high_watermark) == (5, 5)


async def test_records_of_a_later_epoch_only_are_none(follower: Follower) -> None:
    topic = await follower.create(epoch=2)
    stream = await follower.network.stream()
    await stream.until_heard(2, 0)
    stream.tell(records(0, 1, epoch=2) + records(1, 1, epoch=3))
    await stream.until_heard(2, 1, 2)
    stream.tell(records(1, 1, epoch=3))
    await until(lambda: len(stream.heard) == 3)
    assert stream.last[:2] == (2, 1)
    assert epochs(follower, topic) == ((2, 0),)


async def test_a_full_disk_is_waited_out(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 2)
    lane = follower.replica(topic).lane
    assert lane is not None

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentFile, "write", full)
        count = len(stream.heard)
        stream.tell(records(2), high_watermark=3)
        await until(lambda: lane.is_refusing)
        await until(lambda: len(stream.heard) > count)
        assert stream.last[:2] == (0, 2)
        assert not stream.heard[-1].disk_refuses, "once is a hitch"
        count = len(stream.heard)
        stream.tell(records(2), high_watermark=3)
        await until(lambda: len(stream.heard) > count)
        assert stream.heard[-1].disk_refuses, "twice is to be said: nobody is to wait for it"
        assert stream.last[:2] == (0, 2)
    assert not follower.replica(topic).is_offline
    await fill(follower, topic, stream, 2)
    assert not stream.heard[-1].disk_refuses


async def test_of_a_log_all_of_which_is_deleted_nothing_counts_as_committed(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of another history than what is committed, and is there until the disk lets it go."""
    topic = await follower.create(epoch=2)
    stream = await follower.network.stream()
    await stream.until_heard(2, 0)
    stream.tell(records(0, 2, epoch=1), high_watermark=0, log_end_offset=10)
    await stream.until_heard(2, 2)

    def refused(*_: object) -> None:
        raise KafkaError(ErrorCode.kafka_storage_error)

    replica, count = follower.replica(topic), len(stream.heard)
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "truncate_fully_and_start_at", refused)
        batch = encode_batch([(1, None, b"v", ())] * 10, base_offset=0)
        stream.tell(batch, high_watermark=10, log_start_offset=2, log_end_offset=10)
        await until(lambda: len(stream.heard) > count)
        assert (stream.last[1], replica.high_watermark) == (2, 0)
    stream.tell(batch, high_watermark=10, log_start_offset=2, log_end_offset=10)
    await until(lambda: stream.last == (2, 2, -1, 2))


async def test_a_truncation_that_stops_half_way_takes_the_replica_offline(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await follower.create(epoch=2)
    stream = await follower.network.stream()
    await stream.until_heard(2, 0)
    await fill(follower, topic, stream, 4, epoch=1)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(SystemFiles, "ftruncate", staticmethod(broken))
    stream.tell(diverging=(1, 2))
    replica = follower.replica(topic)
    await until(lambda: replica.is_offline)
    assert replica.error == int(ErrorCode.kafka_storage_error)
    await until(lambda: not follower.network.open_streams)


# -- streams ----------------------------------------------------------------------------------------------------


async def test_a_broken_stream_is_opened_anew_and_all_is_told_again(follower: Follower) -> None:
    await follower.create(partitions=3)
    first = await follower.network.stream(1)
    await until(lambda: len(first.heard) == 3)
    first.say(first.answer(records(0, 2), to=first.heard[0]))
    await until(lambda: len(first.heard) == 4)
    first.break_off()
    second = await follower.network.stream(2)
    await until(lambda: len(second.heard) == 3)
    assert sorted(position.fetch_offset for position in second.heard) == [0, 0, 2]
    assert second.identity is not None
    second.tell(records(second.last[1]))
    await until(lambda: len(second.heard) == 4)


@pytest.mark.alone
async def test_a_leader_that_is_away_is_tried_ever_more_rarely(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    await follower.create()
    loop = asyncio.get_running_loop()
    began = []
    for number in range(1, 5):
        stream = await follower.network.stream(number)
        began.append(loop.time())
        stream.break_off()
    pauses = [after - before for before, after in itertools.pairwise(began)]
    for pause, least in zip(pauses, (0.05, 0.1, 0.2), strict=True):
        assert least * 0.9 <= pause < least + 0.3
    last = await follower.network.stream(5)
    await last.until_heard(0, 0)
    last.tell(records(0))
    await last.until_heard(0, 1)
    last.break_off()
    ended = loop.time()
    await follower.network.stream(6)
    assert loop.time() - ended < 0.3


async def test_a_leader_elsewhere_and_a_new_registration_take_another_stream(follower: Follower) -> None:
    await follower.create()
    first = await follower.network.stream(1)
    await first.until_heard(0, 0)
    follower.apply(node_record(LEADER, 21, address="elsewhere"))
    second = await follower.network.stream(2)
    await second.until_heard(0, 0)
    assert second.address == "elsewhere"
    await until(lambda: first.is_over)
    follower.apply(node_record(FOLLOWER, 30))
    third = await follower.network.stream(3)
    await third.until_heard(0, 0)
    assert third.identity is not None
    assert third.identity.broker_epoch == 30
    follower.apply(node_record(3, 5, address="three"))  # nobody that is followed
    await asyncio.sleep(0.02)
    assert len(follower.network.streams) == 3


async def test_a_stream_ends_with_the_last_partition_that_follows_there(follower: Follower) -> None:
    topic = await follower.create()
    first = await follower.network.stream(1)
    await first.until_heard(0, 0)
    follower.apply(node_record(3, 5, address="three"))
    follower.lead(topic, 3, 1)
    second = await follower.network.stream(2)
    await second.until_heard(1, 0)
    assert second.address == "three"
    await until(lambda: first.is_over)
    assert first.hearing is not None
    await until(first.hearing.done)
    follower.lead(topic, -1, 2)
    await until(lambda: second.is_over)
    follower.lead(topic, FOLLOWER, 3)
    await asyncio.sleep(0.02)
    assert len(follower.network.streams) == 2
    follower.lead(topic, 3, 4)
    third = await follower.network.stream(3)
    await third.until_heard(4, 0)


async def test_a_leader_that_is_not_registered_yet_is_waited_for(follower: Follower) -> None:
    topic = await follower.create()
    first = await follower.network.stream(1)
    follower.lead(topic, 3, 1)
    await until(lambda: first.is_over)
    await asyncio.sleep(0.02)
    assert len(follower.network.streams) == 1
    follower.apply(node_record(3, 5, address="three"))
    second = await follower.network.stream(2)
    await second.until_heard(1, 0)


async def test_a_fault_of_ours_ends_one_partition_alone(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await follower.create(partitions=2)
    stream = await follower.network.stream(1)
    await until(lambda: len(stream.heard) == 2)
    broken: Any = follower.replica(topic, 0).following
    monkeypatch.setattr(type(broken._state), "_on_records", lambda *_: 1 / 0)
    first, second = stream.heard
    stream.say(stream.answer(records(0), to=first))
    await until(lambda: "could not be carried out" in caplog.text)
    monkeypatch.undo()
    stream.say(stream.answer(records(0), to=second))
    await until(lambda: len(stream.heard) == 3)
    assert sum(follower.replica(topic, index).following.has_failed for index in range(2)) == 1


def test_a_rest_is_never_none() -> None:
    made = followed.Followed(0, ReplicationQuota(11, 1000))
    assert made.pause_seconds_max == followed.PAUSE_SECONDS_MIN


async def test_metrics_have_kafkas_names(follower: Follower) -> None:
    topic = await follower.create(partitions=2)
    stream = await follower.network.stream()
    await until(lambda: len(stream.heard) == 2)
    first, second = stream.heard
    stream.say(stream.answer(records(0, 2), to=first, high_watermark=7))
    await until(lambda: len(stream.heard) == 3)
    stream.say(stream.answer(to=second, error_code=int(ErrorCode.fenced_leader_epoch)))
    await until(lambda: follower.replica(topic, second.partition).following.has_failed)
    node = follower.node
    collector = StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory)
    samples = {
        (sample.name, sample.labels.get("clientId")): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }
    fetchers = "kafka_server_replicafetchermanager_"
    assert samples[f"{fetchers}maxlag", "Replica"] == 5
    assert samples[f"{fetchers}failedpartitionscount", "Replica"] == 1
    copied = samples["kafka_server_brokertopicmetrics_replicationbytesin_total", None]
    assert copied == len(records(0, 2))
