"""Which coordinator owns which partition of an internal topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.coordinator_assignment import Candidate, assign_owners
from barnabas.controller.core.coordinators import register_coordinator, remove_coordinator
from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.nodes import register_node
from barnabas.controller.core.topics import create_topics
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage

NAMES = st.sampled_from(["a", "b", "c", "d"])
PARTITIONS = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(["", "a", "b", "c", "gone"]),
        st.lists(NAMES, unique=True, max_size=3).map(tuple),
    ),
    max_size=60,
)


def assigned(owners: Iterable[str], live: Collection[str], absent: Collection[str] = ()) -> list[str]:
    """The owners from now on where nobody is near."""
    return assign_owners([Candidate(owner) for owner in owners], live, absent)


@given(PARTITIONS, st.sets(NAMES))
def test_assignment_is_even_and_moves_no_more_than_it_must(
    partitions: list[Candidate], live: set[str]
) -> None:
    result = assign_owners(partitions, live)
    if not live:
        assert set(result) <= {""}
        return
    counts = Counter(result)
    sizes = [counts[name] for name in live]
    assert sum(sizes) == len(partitions)
    assert max(sizes) - min(sizes) <= 1
    owners = [partition.owner for partition in partitions]
    before = sorted((Counter(o for o in owners if o in live)[name] for name in live), reverse=True)
    kept = sum(1 for old, new in zip(owners, result, strict=True) if old == new and old)
    floor, extra = divmod(len(owners), len(live))
    assert kept == sum(min(have, floor + (rank < extra)) for rank, have in enumerate(before))
    again = [partition._replace(owner=owner) for partition, owner in zip(partitions, result, strict=True)]
    assert assign_owners(again, live) == result


def test_who_is_absent_is_given_nothing_and_may_lose() -> None:
    assert assigned("aabbbbcc", "abc", absent="a").count("a") == 2
    shared = Counter(assigned("aaaaaabb", "abc", absent="a"))
    assert shared == {"a": 3, "b": 3, "c": 2}, "c comes, and a has too much"
    assert assigned("bbbbbbc", "abc", absent="ac").count("c") == 1
    assert assigned("bbbbbbc", "abc").count("c") == 2


def test_the_nearest_that_has_room_is_given_a_partition() -> None:
    partitions = [
        Candidate("", ("b", "a")),
        Candidate("", ("a", "b")),
        Candidate("", ("b", "c")),
        Candidate("", ("b",)),
    ]
    assert assign_owners(partitions, "abc") == ["b", "a", "c", "a"], "two for one of them, by name"
    assert assign_owners(partitions[:3], "abc") == ["b", "a", "c"]
    assert assign_owners(partitions[:1], "ac") == ["a"], "where the nearest is gone, the next"


def test_who_has_too_much_keeps_what_is_nearest() -> None:
    partitions = [
        Candidate("a", ("b", "a")),
        Candidate("a", ("b",)),
        Candidate("a", ("a", "b")),
        Candidate("a", ("a",)),
    ]
    assert assign_owners(partitions, "ab") == ["b", "b", "a", "a"]


def test_who_has_too_much_gives_up_what_comes_nearest_by_it() -> None:
    assert assign_owners([Candidate("a"), Candidate("a", ("a",))], "ab") == ["b", "a"]
    assert assign_owners([Candidate("a", ("c", "a")), Candidate("a", ("b", "a"))], "ab") == ["a", "b"]


def test_what_is_owned_afar_stays_where_it_is() -> None:
    """Nearer is no reason to load a partition anew."""
    assert assign_owners([Candidate("a", ("b",)), Candidate("b", ("a",))], "ab") == ["a", "b"]


# -- in brokers ------------------------------------------------------------------------------------------------------


class Brokers:
    """Nodes 1, 2 and 3 with coordinators at their addresses."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        for node_id in (1, 2, 3):
            self.begin(node_id)

    def take(self, decision: Decision[object]) -> None:
        self.image = self.image.apply(decision.records, self.image.revision + 1)

    def begin(self, node_id: int) -> None:
        address, incarnation = f"n{node_id}", f"{self.image.revision}"
        node = md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address=address)
        self.take(register_node(self.image, node))
        name = f"broker-{node_id}"
        coordinator = md.CoordinatorRecord(coordinator_id=name, incarnation_id=incarnation, address=address)
        self.take(register_coordinator(self.image, coordinator))

    def create(self, partitions: int) -> None:
        new = pb.NewTopic(name=GROUP_METADATA_TOPIC, partition_count=partitions, replication_factor=3)
        request = pb.CreateTopicsRequest(topics=[new])
        self.take(create_topics(self.image, request, ClusterDefaults(), lambda: b"t" * 16))

    @property
    def afar(self) -> list[int]:
        """Partitions that are not owned by their preferred leader's broker."""
        partitions = self.image.topics[GROUP_METADATA_TOPIC].partitions
        return [each.partition for each in partitions if each.coordinator_id != f"broker-{each.replicas[0]}"]


def test_a_new_topic_is_owned_where_it_is_led() -> None:
    brokers = Brokers()
    brokers.create(9)
    assert brokers.afar == []


def test_who_comes_back_owns_again_what_it_leads() -> None:
    brokers = Brokers()
    brokers.create(9)
    before = brokers.image.topics[GROUP_METADATA_TOPIC].partitions
    brokers.take(remove_coordinator(brokers.image, "broker-2"))
    for now, then in zip(brokers.image.topics[GROUP_METADATA_TOPIC].partitions, before, strict=True):
        others = [f"broker-{each}" for each in then.replicas if each != 2]
        assert now.coordinator_id in others
        assert then.coordinator_id in (now.coordinator_id, "broker-2"), "others keep what they have"
    brokers.begin(2)
    assert brokers.afar == []


def test_what_is_near_stays_so_for_the_most_part_over_rolling_restarts() -> None:
    brokers = Brokers()
    brokers.create(50)
    for _ in range(8):
        for node_id in (1, 2, 3):
            brokers.take(remove_coordinator(brokers.image, f"broker-{node_id}"))
            brokers.begin(node_id)
        assert len(brokers.afar) <= 15, "50 are not shared out evenly by three"


def test_elsewhere_nobody_is_near() -> None:
    brokers = Brokers()
    for name in ("broker-1", "broker-2", "broker-3"):
        brokers.take(remove_coordinator(brokers.image, name))
    for name in ("c-1", "c-2"):
        coordinator = md.CoordinatorRecord(coordinator_id=name, incarnation_id="a", address=name)
        brokers.take(register_coordinator(brokers.image, coordinator))
    brokers.create(4)
    owners = [each.coordinator_id for each in brokers.image.topics[GROUP_METADATA_TOPIC].partitions]
    assert owners == ["c-1", "c-2"] * 2
