"""Which replica a leader sends a consumer to, as Kafka's RackAwareReplicaSelector has it."""

from __future__ import annotations

import math

import pytest

from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord
from barnabas.metadata.image import MetadataImage, node_key
from barnabas.metadata.settings.replication import RACK_AWARE
from barnabas.storage.fetching.replica_selector import Readable, rack_aware, selector_of

RACKS = {1: "west", 2: "east", 3: "east", 4: "east", 5: "East", 6: "", 7: "far"}
FENCED = 7


def image() -> MetadataImage:
    nodes = [
        MetadataRecord(key=node_key(each), node=NodeRecord(node_id=each, rack=rack, fenced=each == FENCED))
        for each, rack in RACKS.items()
    ]
    return MetadataImage().apply(nodes, 1)


@pytest.mark.parametrize(
    ("rack", "readable", "chosen"),
    [
        ("", [(6, 9, 1.0)], None),
        ("west", [(2, 9, 1.0)], None),  # the leader's own
        ("nowhere", [(2, 9, 1.0)], None),
        ("east", [], None),
        ("EAST", [(2, 9, 1.0), (5, 9, 1.0)], None),
        ("far", [(7, 9, 1.0)], None),  # fenced
        ("east", [(9, 9, 1.0)], None),  # not registered
        ("East", [(2, 9, 1.0), (5, 3, 1.0)], 5),
        ("east", [(2, 9, 1.0), (3, 8, math.inf), (4, 7, math.inf)], 2),
        ("east", [(2, 9, 1.0), (3, 9, 2.0), (4, 9, 0.5)], 3),
        ("east", [(2, 9, 1.0), (4, 9, 1.0), (3, 9, 1.0)], 4),
    ],
)
def test_rack_aware(rack: str, readable: list[Readable], chosen: int | None) -> None:
    assert rack_aware(rack, image(), 1, readable) == chosen


def test_the_setting_names_the_selector() -> None:
    assert selector_of(None) is None
    assert selector_of(RACK_AWARE) is rack_aware
