"""What a coordinator in the node's own process has in a log before the call returns, and what is left to requests."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import StorageHarness, batch, coordinator_record, run_node, topic_config, topic_records
from test_append_at_once import prove_fast

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import CoordinatorIdentity, PartitionAppend
from barnabas.records.control import encode_marker

OFFSETS = "__consumer_offsets"
OWNER = ("c1", "process 1")
EPOCH = 4
LEADER_EPOCH = 3


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        harness.apply(coordinator_record(*OWNER))
        yield harness


@pytest.fixture
async def offsets(node: StorageHarness) -> uuid.UUID:
    topic = await node.create_topic(
        OFFSETS, internal=True, leader_epoch=LEADER_EPOCH, coordinator_id="c1", coordinator_epoch=EPOCH
    )
    prove_fast(node.replica(topic))
    return topic


def write(
    node: StorageHarness,
    topic: uuid.UUID,
    expected: int | None = None,
    records: bytes = batch(b"a"),
    *,
    coordinator: tuple[str, str] = OWNER,
    epoch: int = EPOCH,
    leader_epoch: int = LEADER_EPOCH,
    transaction_version: int = 0,
) -> int | None:
    name, incarnation = coordinator
    item = PartitionAppend(
        topic_id=topic.bytes,
        leader_epoch=leader_epoch,
        coordinator_epoch=epoch,
        expected_log_end=expected,
        records=records,
        marker_transaction_version=transaction_version,
    )
    identity = CoordinatorIdentity(coordinator_id=name, incarnation_id=incarnation)
    return node.appends.write_at_once(identity, item)


async def test_the_owner_writes_where_it_expects_the_end(node: StorageHarness, offsets: uuid.UUID) -> None:
    replica = node.replica(offsets)
    assert write(node, offsets, 0, batch(b"a", b"b")) == 0
    assert (replica.high_watermark, write(node, offsets, 2), replica.high_watermark) == (2, 2, 3)
    for elsewhere in (0, 2, 4):
        assert write(node, offsets, elsewhere) is None
    assert write(node, offsets) == 3
    counts = replica.counts
    assert (counts.messages_in, counts.bytes_in) == (4, len(batch(b"a", b"b")) + 2 * len(batch(b"a")))


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"epoch": EPOCH - 1}, ErrorCode.not_coordinator),
        ({"epoch": EPOCH + 1}, ErrorCode.unknown_leader_epoch),
        ({"coordinator": ("c1", "guessed")}, ErrorCode.cluster_authorization_failed),
        ({"coordinator": ("c2", "process 1")}, ErrorCode.cluster_authorization_failed),
        ({"leader_epoch": LEADER_EPOCH - 1}, ErrorCode.fenced_leader_epoch),
        ({"leader_epoch": LEADER_EPOCH + 1}, ErrorCode.unknown_leader_epoch),
    ],
    ids=str,
)
async def test_who_is_refused_changes_nothing(
    node: StorageHarness, offsets: uuid.UUID, claim: dict[str, Any], code: ErrorCode
) -> None:
    replica = node.replica(offsets)
    assert write(node, offsets, 0, **claim) is None
    assert (replica.high_watermark, replica.counts.messages_in) == (0, 0)
    asked = {"coordinator": OWNER, "coordinator_epoch": EPOCH, "leader_epoch": LEADER_EPOCH}
    asked |= {"coordinator_epoch" if name == "epoch" else name: value for name, value in claim.items()}
    refused = await node.append(offsets, batch(b"a"), expected_log_end=0, **asked)
    assert refused.error_code == code, "a request says why"
    assert write(node, offsets, 0) == 0


async def test_a_marker_ends_its_transaction(node: StorageHarness) -> None:
    topic = await node.create_topic(leader_epoch=LEADER_EPOCH)
    replica = node.replica(topic)
    prove_fast(replica)
    node.verify_no_transactions()
    numbered = batch(b"v", producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    assert (await node.append(topic, numbered)).error_code == 0
    assert replica.log is not None
    assert replica.log.last_stable_offset(replica.high_watermark) == 0
    marker = encode_marker(
        committed=False, producer_id=7, producer_epoch=2, coordinator_epoch=EPOCH, timestamp=0
    )
    assert write(node, topic, None, marker) == 1
    assert replica.log.last_stable_offset(replica.high_watermark) == 2
    assert [each.first_offset for each in replica.log.aborted_transactions(0, 2)] == [0]
    former = encode_marker(
        committed=True, producer_id=7, producer_epoch=1, coordinator_epoch=EPOCH, timestamp=0
    )
    assert write(node, topic, None, former) is None, "of an epoch that is over"
    assert replica.high_watermark == 2


async def test_it_is_for_who_leads_alone_without_syncs_on_a_fast_disk(
    node: StorageHarness, offsets: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = node.replica(offsets)
    queue: Any = replica.appending._queue
    queue.items["something"] = None
    assert write(node, offsets) is None
    queue.items.clear()
    assert replica._durability is not None
    replica._durability.commit.is_pending = True
    assert write(node, offsets) is None
    replica._durability.commit.is_pending = False
    monkeypatch.setattr(node.appends, "is_stopped", True)
    assert write(node, offsets) is None
    monkeypatch.undo()
    node.apply(topic_config(OFFSETS, flush_messages="1"))
    assert write(node, offsets) is None
    node.apply(topic_config(OFFSETS))
    assert write(node, uuid.uuid4()) is None
    assert write(node, offsets) == 0
    more = {"internal": True, "coordinator_id": "c1", "coordinator_epoch": EPOCH}
    node.apply(*topic_records(OFFSETS, offsets, leader_epoch=LEADER_EPOCH + 1, replicas=(1, 2), **more))
    assert write(node, offsets, leader_epoch=LEADER_EPOCH + 1) is None, "another replica has to have it"
    assert replica.counts.messages_in == 1


async def test_a_fault_of_ours_is_for_the_request_to_tell(
    node: StorageHarness,
    offsets: uuid.UUID,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(node.replica(offsets).appending.__class__, "_write", fail)
    assert write(node, offsets) is None
    assert "append failed" in caplog.text
