"""What is remembered of partitions that are not here: bounded, handed over once, and not of deleted topics."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from storage_harness import batch, run_node, topic_records

from barnabas.kernel.clock import ManualClock
from barnabas.log.producers.refused_sequences import REFUSED_PRODUCERS_MAX, RefusedSequences
from barnabas.storage import limits
from barnabas.storage.replica.refused_while_absent import RefusedWhileAbsent

TOPIC = b"t" * 16
OTHER = b"o" * 16


def made(producer_id: int = 7, sequence: int = 0) -> bytes:
    return batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_it_is_handed_over_once() -> None:
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    absent.add((TOPIC, 0), made(7))
    absent.add((TOPIC, 0), made(8))
    absent.add((TOPIC, 1), made(7))
    assert len(absent.take((TOPIC, 0))) == 2
    assert len(absent.take((TOPIC, 0))) == 0
    assert len(absent.take((TOPIC, 1))) == 1
    assert len(absent) == 0


def test_what_has_no_sequence_leaves_nothing() -> None:
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    absent.add((TOPIC, 0), batch(b"v"))
    absent.add((TOPIC, 0), b"short")
    assert len(absent) == 0


def test_partitions_that_nobody_heard_of_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSED_WHILE_ABSENT_MAX", 6)
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    for index in range(20):
        absent.add((TOPIC, index), made())
    assert len(absent) == 3
    assert [index for index in range(20) if len(absent.take((TOPIC, index)))] == [17, 18, 19]


def test_their_producers_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSED_WHILE_ABSENT_MAX", 6)
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    absent.add((OTHER, 0), made())
    for producer_id in range(4):
        absent.add((TOPIC, 0), made(producer_id))
        absent.add((TOPIC, 0), made(producer_id))  # sent again: counted once
    assert len(absent) == 1
    assert len(absent.take((TOPIC, 0))) == 4
    absent.add((OTHER, 0), made())
    absent.add((OTHER, 1), made())
    absent.add((OTHER, 2), made())
    assert len(absent) == 3, "what was handed over, or forgotten, counts no longer"


def test_a_replica_that_left_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSED_WHILE_ABSENT_MAX", 6)
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    kept = [RefusedSequences(ManualClock().monotonic) for _ in range(8)]
    for index, refused in enumerate(kept):
        absent.keep((TOPIC, index), refused)
    assert len(absent) == 6
    assert absent.take((TOPIC, 7)) is kept[7]


def test_one_partition_with_all_the_producers_that_it_remembers_fits() -> None:
    assert REFUSED_PRODUCERS_MAX + 1 <= limits.REFUSED_WHILE_ABSENT_MAX


def test_deleted_topics_do_not_come_again() -> None:
    absent = RefusedWhileAbsent(ManualClock().monotonic)
    for key in ((TOPIC, 0), (OTHER, 0), (TOPIC, 1)):
        absent.add(key, made())
    absent.forget_topics({TOPIC})
    assert [len(absent.take(key)) for key in ((TOPIC, 0), (OTHER, 0), (TOPIC, 1))] == [0, 1, 0]


async def test_a_node_forgets_what_was_deleted(tmp_path: Path) -> None:
    async with run_node(tmp_path / "a", tmp_path / "s") as node:
        absent = node.replicas.refused_while_absent
        unheard_of, topic = uuid.uuid4(), await node.create_topic()
        await node.append(unheard_of, made())
        await node.append(topic, made(), index=1)
        assert len(absent) == 2
        node.apply(node.deletion(unheard_of))
        assert len(absent) == 1
        node.snapshot(node.deletion(topic), node.deletion(unheard_of))
        assert len(absent) == 0
        for each in (topic, unheard_of):
            await node.append(each, made())
        assert len(absent) == 0
        other = uuid.uuid4()
        await node.append(other, made())
        assert len(absent) == 1
        node.apply(*topic_records("events", other))
        assert len(absent) == 0


async def test_a_deleted_topic_displaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSED_WHILE_ABSENT_MAX", 4)
    async with run_node(tmp_path / "a", tmp_path / "s") as node:
        topic, unheard_of = await node.create_topic(partitions=8), uuid.uuid4()
        await node.append(unheard_of, made())
        node.snapshot(node.deletion(topic))
        assert not node.replicas.by_partition
        assert len(node.replicas.refused_while_absent.take((unheard_of.bytes, 0))) == 1
