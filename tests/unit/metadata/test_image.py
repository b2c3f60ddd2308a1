"""The image: what the records make of it, what it says has changed, and that one partition's change is cheap."""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType

from barnabas.messages.metadata_pb2 import (
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    CoordinatorRecord,
    DeletedTopicRecord,
    FeatureRecord,
    GatewayRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Term,
    TermsRecord,
    TopicRecord,
)
from barnabas.metadata.client_quotas import client_quota_key, entity_parts
from barnabas.metadata.image import (
    CLUSTER_KEY,
    PRODUCER_IDS_KEY,
    TERMS_KEY,
    MetadataImage,
    config_key,
    coordinator_key,
    deleted_topic_key,
    feature_key,
    gateway_key,
    node_key,
    partition_key,
    topic_key,
)

TOPIC_ID = b"t" * 16


def partition(index: int, topic_id: bytes = TOPIC_ID, **fields: object) -> MetadataRecord:
    record = PartitionRecord(topic_id=topic_id, partition=index, replicas=(1, 2), isr=(1, 2), leader=1)
    record.MergeFrom(PartitionRecord(**fields))  # type: ignore[arg-type]
    return MetadataRecord(key=partition_key(topic_id, index), partition=record)


def topic(name: str, count: int, topic_id: bytes = TOPIC_ID) -> list[MetadataRecord]:
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=count)
    partitions = [partition(index, topic_id) for index in range(count)]
    return [*partitions, MetadataRecord(key=topic_key(name), topic=record)]


def one_topic(partitions: int) -> MetadataImage:
    return MetadataImage().apply(topic("events", partitions), 1)


def many_topics(topics: int) -> MetadataImage:
    records = []
    for number in range(topics):
        records += topic(f"t{number}", 1, b"%016d" % number)
    return MetadataImage().apply(records, 1)


def everything() -> list[MetadataRecord]:
    entity = (("client-id", None), ("user", "a,b=c%"))
    quota = ClientQuotaRecord(entity=entity_parts(entity), values={"producer_byte_rate": 5.0})
    return [
        MetadataRecord(key=CLUSTER_KEY, cluster=ClusterRecord(cluster_id="c" * 22)),
        MetadataRecord(key=PRODUCER_IDS_KEY, producer_ids=ProducerIdsRecord(next_producer_id=7)),
        MetadataRecord(key=node_key(1), node=NodeRecord(node_id=1, address="n")),
        MetadataRecord(key=gateway_key("g/1"), gateway=GatewayRecord(gateway_id="g/1")),
        MetadataRecord(key=coordinator_key("c"), coordinator=CoordinatorRecord(coordinator_id="c")),
        MetadataRecord(key=config_key(32, "a/b"), config=ConfigRecord(values={"x": "1"})),
        MetadataRecord(key=feature_key("f"), feature=FeatureRecord(name="f", level=2)),
        MetadataRecord(key=client_quota_key(entity), client_quota=quota),
        MetadataRecord(
            key=deleted_topic_key(b"d" * 16), deleted_topic=DeletedTopicRecord(topic_id=b"d" * 16)
        ),
        MetadataRecord(key=TERMS_KEY, terms=TermsRecord(terms=[Term(term_id="a", first_revision=3)])),
        *topic("events", 100),
    ]


def test_the_records_of_an_image_make_the_same_image() -> None:
    records = everything()
    image = MetadataImage().apply(records, 5)
    assert image.records == {record.key: record for record in records}
    assert MetadataImage().apply(image.records.values(), 5) == image


def test_deletions_leave_nothing() -> None:
    records = everything()
    image = MetadataImage().apply(records, 5)
    deletions = [MetadataRecord(key=record.key) for record in records]
    assert image.apply(deletions, 6) == MetadataImage(revision=6)
    assert MetadataImage().apply(deletions, 6) == MetadataImage(revision=6), "what was never there"


def test_a_change_names_what_it_changed() -> None:
    image = one_topic(3)
    config = MetadataRecord(key=config_key(2, "events"), config=ConfigRecord(values={"x": "1"}))
    changed = image.apply([partition(1, isr=(1,)), config], 2)
    changes = changed.changes_since(image)
    assert changes is not None
    assert (changes.topics, changes.partitions) == ((), ((TOPIC_ID, 1),))
    assert changes.configs == ((2, "events"),)
    grown = changed.apply([partition(3), *topic("events", 4)[-1:]], 3)
    assert [p.partition for p in grown.topics["events"].partitions] == [0, 1, 2, 3]
    assert grown.changes is not None
    assert (grown.changes.topics, grown.changes.partitions) == ((TOPIC_ID,), ((TOPIC_ID, 3),))
    assert grown.changes_since(image) is None, "a change was missed: anything may differ"
    assert one_topic(3).changes_since(MetadataImage()) is None
    again = grown.apply(topic("events", 2, b"u" * 16), 4)
    assert again.changes is not None
    assert set(again.changes.topics) == {TOPIC_ID, b"u" * 16}
    assert set(again.topics_by_id) == {b"u" * 16}


class Calls:
    """Counts the calls of Python and C functions while it is the context."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, _: FrameType, event: str, __: object) -> None:
        self.count += event in ("call", "c_call")


def cost_of_one_change(image: MetadataImage, change: MetadataRecord) -> tuple[int, int]:
    """(calls made, peak of bytes allocated) by applying the change."""
    with Calls() as calls:
        image.apply([change], 2)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        image.apply([change], 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return calls.count, peak - before


def test_the_change_of_one_partition_costs_the_same_in_a_large_image() -> None:
    """By counts, not by time: neither more calls nor, but for the list of chunks, more copied."""
    for small, large in (
        (
            cost_of_one_change(one_topic(100), partition(50, isr=(1,))),
            cost_of_one_change(one_topic(10_000), partition(5_000, isr=(1,))),
        ),
        (
            cost_of_one_change(many_topics(100), partition(0, b"%016d" % 50, isr=(1,))),
            cost_of_one_change(many_topics(10_000), partition(0, b"%016d" % 5_000, isr=(1,))),
        ),
    ):
        assert large[0] <= small[0] + 10
        assert large[1] <= small[1] + 6_000


def test_eligible_are_the_nodes_that_are_neither_fenced_nor_stopping() -> None:
    def put(
        image: MetadataImage, node_id: int, *, fenced: bool = False, stopping: bool = False
    ) -> MetadataImage:
        node = NodeRecord(node_id=node_id, node_epoch=10 * node_id, fenced=fenced, stopping=stopping)
        return image.apply([MetadataRecord(key=node_key(node_id), node=node)], image.revision + 1)

    image = put(put(put(MetadataImage(), 2), 1, fenced=True), 3, stopping=True)
    assert image.eligible_epochs == {2: 20}
    unchanged = image.apply(topic("t", 1), image.revision + 1)
    assert unchanged.eligible_epochs is image.eligible_epochs
    image = put(unchanged, 1)
    assert image.eligible_epochs == {1: 10, 2: 20}
    assert MetadataImage(nodes=image.nodes).eligible_epochs == image.eligible_epochs
    gone = image.apply([MetadataRecord(key=node_key(2))], image.revision + 1)
    assert gone.eligible_epochs == {1: 10}
