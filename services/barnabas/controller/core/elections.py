"""Who leads partitions, and who is in sync, after nodes came or went.

Each function says what a node's coming or going means for the in-sync replicas of one partition; what follows from that
is `partition_change`'s. The nodes that may lead and be in sync are in the terms (`MetadataImage.eligible_epochs`): one
that is stopping is none of them, but goes on to lead what nobody else can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.controller.core.decision import partition_entry
from barnabas.controller.core.min_in_sync import MinInSync
from barnabas.controller.core.partition_change import ElectionTerms, PartitionChange
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.effective import effective_topic_setting
from barnabas.metadata.image import NO_LEADER, MetadataImage

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

Decide = Callable[[PartitionRecord, ElectionTerms], PartitionRecord | None]


class Restart(NamedTuple):
    """A new process of a node that was known."""

    node_id: int
    is_clean: bool
    """Whether the process before it was stopped properly: then it has all that it said to have."""
    has_lost_a_directory: bool
    """Whether it lacks a log directory that the process before it had something in, or may have had."""


def after_node_left(partition: PartitionRecord, node_id: int, terms: ElectionTerms) -> PartitionRecord | None:
    """The partition without `node_id`, or None when nothing changes. The terms are those of who remains."""
    if node_id not in partition.isr and partition.leader != node_id:
        return None
    return _without(partition, node_id, terms).build()


def after_node_came(partition: PartitionRecord, terms: ElectionTerms) -> PartitionRecord | None:
    """The partition with a leader, if it had none and there is a candidate; else None."""
    if partition.leader != NO_LEADER:
        return None
    return PartitionChange(partition, terms).build()


def after_node_restarted(
    partition: PartitionRecord, restart: Restart, terms: ElectionTerms
) -> PartitionRecord | None:
    """The new process is in no ISR (KIP-903), unless it is elected as one that has everything, or as the last that led.

    A clean one is still eligible where it was or comes to be by leaving. One that lost a directory may have lost
    anything of any partition, for nobody else knows which of them were in it.
    """
    node_id = restart.node_id
    is_concerned = (
        node_id in partition.isr[:]
        or partition.leader == NO_LEADER
        or node_id in partition.eligible_leader_replicas[:]
        or node_id in partition.offline_replicas[:]
    )
    if not is_concerned:
        return None
    change = PartitionChange(partition, terms)
    change.leave(node_id)
    change.restarted = node_id
    change.offline = [replica for replica in change.offline if replica != node_id]
    if restart.has_lost_a_directory:
        change.lost_all = change.distrusted = (node_id,)
    elif not restart.is_clean:
        change.distrusted = (node_id,)
    return change.build()


def after_hand_over(partition: PartitionRecord, node_id: int, terms: ElectionTerms) -> PartitionRecord | None:
    """The partition without `node_id`, which is about to stop, where another replica that is there and stays has all
    that is committed; else None.

    Where it is the only one, it goes on leading until it is gone: nothing unclean happens because of a restart.
    """
    if node_id not in partition.isr:
        return None
    if partition.leader != node_id:
        if not any(replica in terms.eligible for replica in partition.isr if replica != node_id):
            return None
        # It leads on, whether or not anybody has heard from it lately.
        terms = replace(terms, eligible=[*terms.eligible, partition.leader])
        return _without(partition, node_id, terms).build()
    after = _without(partition, node_id, terms).build()
    return after if after is not None and after.leader in terms.eligible else None


def _without(partition: PartitionRecord, node_id: int, terms: ElectionTerms) -> PartitionChange:
    change = PartitionChange(partition, terms)
    change.leave(node_id)
    return change


def never() -> bool:
    """Only who has all that is committed may lead, or led last."""
    return False


def elections(
    image: MetadataImage, decide: Decide, eligible: Collection[int] | None = None
) -> list[MetadataRecord]:
    """What `decide` changes among all visible partitions; the nodes are those of the image, unless others are given."""
    changed = []
    min_in_sync = MinInSync(image)
    for topic in image.topics.values():
        terms = terms_of(image, topic.name, eligible, min_in_sync)
        for partition in topic.partitions:
            after = decide(partition, terms)
            if after is not None:
                changed.append(partition_entry(after))
    return changed


def terms_of(
    image: MetadataImage,
    topic: str,
    eligible: Collection[int] | None = None,
    min_in_sync: MinInSync | None = None,
) -> ElectionTerms:
    """What changes of the topic's partitions go by; the nodes are those of the image, unless others are given.

    Who asks for many topics of one image shares its `min_in_sync`.
    """
    return ElectionTerms(
        image.eligible_epochs if eligible is None else eligible,
        lambda: (min_in_sync or MinInSync(image)).of(topic),
        lambda: bool(effective_topic_setting(image, topic, UNCLEAN_ELECTION).value),
    )
