"""Leader epochs that logs have seen and restored metadata do not know."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.core.leader_epochs import FORGOTTEN_ELECTIONS as SKIPPED
from barnabas.controller.core.leader_epochs import raise_leader_epochs
from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.controller.core.producer_ids import allocate_producer_ids
from barnabas.controller.core.terms import begin_term
from barnabas.controller.limits import SEEN_LEADER_EPOCHS_MAX
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, topic_key
from barnabas.metadata.leaders import LEADER_EPOCH_MAX

TOPIC = b"t" * 16
PARTITIONS = 4
KNOWN_EPOCH = 5

Seen = Sequence[tuple[int, int]]
"""(partition, leader epoch) each."""


def cluster() -> MetadataImage:
    """Partitions of nodes 1 and 2, but for the last, which is node 2's alone."""
    image = MetadataImage()
    for node_id in (1, 2):
        node = md.NodeRecord(node_id=node_id, incarnation_id=f"of {node_id}", address="n")
        image = image.apply(register_node(image, node).records, image.revision + 1)
    partitions = [
        md.PartitionRecord(
            topic_id=TOPIC,
            partition=index,
            leader=2,
            leader_epoch=KNOWN_EPOCH,
            replicas=(2,) if index == PARTITIONS - 1 else (1, 2),
            isr=(2,),
            coordinator_epoch=3,
        )
        for index in range(PARTITIONS)
    ]
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=PARTITIONS)
    records = [*map(partition_entry, partitions), md.MetadataRecord(key=topic_key("t"), topic=topic)]
    return image.apply(records, image.revision + 1)


def asked(image: MetadataImage, node_id: int, seen: Seen, incarnation: str = "") -> Decision[object]:
    partitions = [pb.SeenLeaderEpoch(topic_id=TOPIC, partition=p, leader_epoch=epoch) for p, epoch in seen]
    request = pb.RaiseLeaderEpochsRequest(
        node_id=node_id, incarnation_id=incarnation or f"of {node_id}", partitions=partitions
    )
    return raise_leader_epochs(image, request)  # type: ignore[return-value]


def after(image: MetadataImage, node_id: int, seen: Seen) -> MetadataImage:
    return image.apply(asked(image, node_id, seen).records, image.revision + 1)


def epochs(image: MetadataImage) -> list[int]:
    return [partition.leader_epoch for partition in image.topics["t"].partitions]


def test_epochs_rise_above_what_logs_have_seen_and_above_what_clients_may_have_heard_of() -> None:
    before = cluster()
    image = after(before, 1, [(0, 9), (1, KNOWN_EPOCH), (2, KNOWN_EPOCH - 1)])
    assert epochs(image) == [10 + SKIPPED, KNOWN_EPOCH + 1 + SKIPPED, KNOWN_EPOCH + 1 + SKIPPED, KNOWN_EPOCH]
    expected = md.PartitionRecord()
    expected.CopyFrom(before.topics["t"].partitions[0])
    expected.leader_epoch, expected.partition_epoch = 10 + SKIPPED, 1
    assert image.topics["t"].partitions[0] == expected, "nothing else changes"


def test_what_is_no_news_changes_nothing() -> None:
    assert not asked(cluster(), 1, [(0, KNOWN_EPOCH - 1), (1, 0)]).records
    assert not asked(cluster(), 1, []).records


def test_what_comes_twice_late_or_from_two_replicas_raises_once_and_never_lowers() -> None:
    image = after(cluster(), 1, [(0, 9)])
    assert not asked(image, 1, [(0, 9)]).records
    assert not asked(image, 2, [(0, 7)]).records
    assert epochs(after(image, 2, [(0, 3000), (0, 12), (0, 3000)]))[0] == 3001 + SKIPPED


def test_partitions_that_are_gone_or_not_the_nodes_are_passed_over() -> None:
    assert not asked(cluster(), 1, [(PARTITIONS - 1, 9), (PARTITIONS, 9), (-1, 9)]).records


@pytest.mark.parametrize("epoch", [LEADER_EPOCH_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_an_epoch_that_cannot_be_right_changes_nothing(epoch: int) -> None:
    assert not asked(cluster(), 1, [(0, epoch)]).records


def test_the_highest_epoch_leaves_room_for_as_many_elections_again() -> None:
    image = after(cluster(), 1, [(0, LEADER_EPOCH_MAX)])
    assert epochs(image)[0] == LEADER_EPOCH_MAX + 1 + SKIPPED < 2**30 + 2**20
    assert not asked(image, 1, [(0, LEADER_EPOCH_MAX)]).records


def test_only_the_registered_process_of_the_node_may() -> None:
    image = cluster()
    fenced = image.apply(fence_node(image, 1).records, image.revision + 1)
    for state, node_id, incarnation in ((image, 1, "of 2"), (image, 3, "of 3"), (fenced, 1, "of 1")):
        with pytest.raises(KafkaError) as refused:
            asked(state, node_id, [(0, 9)], incarnation)
        assert refused.value.code == ErrorCode.stale_broker_epoch


def test_a_request_has_a_limit() -> None:
    assert asked(cluster(), 1, [(0, 9)] * SEEN_LEADER_EPOCHS_MAX).records
    with pytest.raises(KafkaError) as refused:
        asked(cluster(), 1, [(0, 9)] * (SEEN_LEADER_EPOCHS_MAX + 1))
    assert refused.value.code == ErrorCode.invalid_request


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2]),
            st.lists(st.tuples(st.integers(0, PARTITIONS), st.integers(-1, 2**31 - 1)), max_size=6),
        ),
        max_size=6,
    )
)
def test_any_requests_only_raise_within_the_limit(requests: list[tuple[int, Seen]]) -> None:
    image = cluster()
    for node_id, seen in requests:
        before, image = epochs(image), after(image, node_id, seen)
        assert all(
            old <= new <= LEADER_EPOCH_MAX + 1 + SKIPPED
            for old, new in zip(before, epochs(image), strict=True)
        )
        assert not asked(image, node_id, seen).records


def test_an_evil_node_cannot_bring_epochs_to_their_end() -> None:
    image = after(cluster(), 1, [(0, LEADER_EPOCH_MAX), (1, LEADER_EPOCH_MAX)])
    for _ in range(3):
        image = after(image, 1, [(2, epochs(image)[2])])
    assert max(epochs(image)) == LEADER_EPOCH_MAX + 1 + SKIPPED


def allocated(image: MetadataImage) -> tuple[range, MetadataImage]:
    decision = allocate_producer_ids(image)
    block = decision.response
    ids = range(block.first_producer_id, block.first_producer_id + block.count)
    return ids, image.apply(decision.records, image.revision + 1)


def begun(image: MetadataImage, now_ms: int) -> MetadataImage:
    return image.apply(begin_term(image, f"at {now_ms}", now_ms).records, image.revision + 1)


def test_a_restored_backup_hands_out_no_producer_id_again() -> None:
    backup = begun(MetadataImage(), now_ms=1_000)
    image, used = backup, set()
    for _ in range(50):
        ids, image = allocated(image)
        used.update(ids)
    for restored_at_ms in (1_050, 90_000):
        ids, _ = allocated(begun(backup, restored_at_ms))
        assert used.isdisjoint(ids)


def test_a_clock_that_went_back_lowers_no_producer_id() -> None:
    ids, image = allocated(begun(MetadataImage(), now_ms=1_000))
    later, _ = allocated(begun(image, now_ms=10))
    assert later[0] == ids[-1] + 1
