"""A model of the nodes of a cluster with one partition: what their processes have in their logs, and what they have
heard of the metadata.

Logs are lists of (leader epoch, number). Everything that a node does goes by the image that it has heard of, which may
be old; what it proposes may come late, and twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.effective import effective_topic_setting
from barnabas.metadata.image import MetadataImage

TOPIC_ID = b"t" * 16
NOBODY = -1

Entry = tuple[int, int]


def common_prefix(some: Sequence[Entry], others: Sequence[Entry]) -> int:
    """How many entries both begin with."""
    length = 0
    while length < min(len(some), len(others)) and some[length] == others[length]:
        length += 1
    return length


@dataclass
class Process:
    """A process of a node, and its disk."""

    node_id: int
    incarnation: int = 0
    is_alive: bool = True
    is_registered: bool = False
    """Whether this very process has registered."""
    clean_epoch: int | None = None
    """The broker epoch under which the process before it was stopped properly."""
    directory: bytes = b"d0"
    is_dirty: bool = False
    """Whether the log may lack what an earlier process had, and the controller has not heard of that."""
    broker_epoch: int = NOBODY
    is_offline: bool = False
    log: list[Entry] = field(default_factory=list)
    image: MetadataImage = field(default_factory=MetadataImage)
    led_epoch: int = NOBODY
    """The leader epoch that it leads in, as far as it knows."""
    epoch_start: int = 0
    high_watermark: int = 0
    pending: frozenset[int] | None = None
    proposal: pb.AlterPartitionRequest | None = None
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By follower: its log end, and its broker epoch, as of its last fetch."""

    @property
    def name(self) -> str:
        return f"life {self.incarnation}"

    @property
    def record(self) -> md.PartitionRecord:
        found = self.image.partition(TOPIC_ID, 0)
        return md.PartitionRecord(leader=NOBODY, leader_epoch=NOBODY) if found is None else found

    @property
    def leads(self) -> bool:
        return self.is_alive and not self.is_offline and self.led_epoch != NOBODY

    def start(self) -> None:
        """Another process takes the place of the one before."""
        self.incarnation += 1
        self.is_alive, self.is_registered, self.is_offline = True, False, False
        self.image = MetadataImage()
        self._stand_down()

    def _stand_down(self) -> None:
        self.led_epoch, self.pending, self.proposal, self.known = NOBODY, None, None, {}

    def learn(self, image: MetadataImage) -> None:
        """The process hears of newer metadata."""
        before, self.image = self.record, image
        record = self.record
        if self.node_id not in record.replicas:
            self.log = []
        if record.leader != self.node_id or self.is_offline:
            self._stand_down()
        elif record.leader_epoch != self.led_epoch:
            self.led_epoch, self.epoch_start = record.leader_epoch, len(self.log)
            self.pending, self.proposal, self.known = None, None, {}
            self.high_watermark = 0
        elif record.partition_epoch > before.partition_epoch:
            self.pending = self.proposal = None

    def go_offline(self) -> None:
        self.is_offline = True
        self._stand_down()

    @property
    def is_short(self) -> bool:
        """As the leader reckons: too few are in sync for anything to be committed."""
        record = self.record
        setting = effective_topic_setting(self.image, "t", "min.insync.replicas", node_id=self.node_id).value
        assert isinstance(setting, int)
        needed = min(setting, len(record.replicas) - len(record.adding_replicas))
        return len(record.isr) < needed or bool(record.eligible_leader_replicas)

    def replicated(self) -> int:
        """Up to where all have the log who have to."""
        maximal = {*self.record.isr, *(self.pending or ())} - {self.node_id}
        return min([len(self.log), *(self.known.get(node, (0, NOBODY))[0] for node in maximal)])

    def answer_fetch(self, follower: Process, most: int) -> None:
        """The follower tells where its log ends, and gets at most so many entries, or has to drop what differs."""
        record = self.record
        same = follower.record.leader == self.node_id and follower.record.leader_epoch == self.led_epoch
        if not same or follower.node_id not in record.replicas:
            return
        if follower.broker_epoch < self.image.eligible_epochs.get(follower.node_id, NOBODY):
            return
        length = common_prefix(self.log, follower.log)
        if length < len(follower.log):
            del follower.log[length:]
            return
        self.known[follower.node_id] = length, follower.broker_epoch
        follower.log += self.log[length : length + most]

    def propose(self, isr: frozenset[int]) -> pb.AlterPartitionRequest:
        """AlterPartition, as it is sent, and sent again."""
        self.pending = isr
        members = [
            pb.IsrMember(
                node_id=node,
                broker_epoch=self.broker_epoch
                if node == self.node_id
                else self.known.get(node, (0, NOBODY))[1],
            )
            for node in sorted(isr)
        ]
        proposal = pb.IsrProposal(
            topic_id=TOPIC_ID,
            leader_epoch=self.led_epoch,
            partition_epoch=self.record.partition_epoch,
            isr=members,
        )
        self.proposal = pb.AlterPartitionRequest(
            node_id=self.node_id, node_epoch=self.broker_epoch, partitions=[proposal]
        )
        return self.proposal

    def may_join(self, node: int) -> bool:
        """Whether a follower may be proposed for the ISR."""
        end, epoch = self.known.get(node, (NOBODY, NOBODY))
        return (
            node in self.record.replicas
            and node not in self.record.isr
            and node not in self.record.offline_replicas
            and self.image.eligible_epochs.get(node) == epoch
            and end >= max(self.high_watermark, self.epoch_start)
        )
