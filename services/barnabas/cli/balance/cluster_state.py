"""A cluster as an operator's commands see it: nodes, their disks, partitions and their replicas, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.kernel.cordoned import are_all_cordoned

NO_LEADER: Final = -1

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a node; sizes are None where the node does not say them."""

    path: str
    error: str | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False
    future_replicas: int = 0
    """How many replicas are on their way to it from another directory of the node."""


@dataclass(frozen=True, slots=True)
class Node:
    """A storage node, Kafka's broker."""

    node_id: int
    rack: str = ""
    host: str | None = None
    port: int | None = None
    is_registered: bool = True
    """False for one that is a replica of something, though the cluster does not know it (any more)."""
    is_fenced: bool = False
    cordoned: Sequence[str] = ()
    """cordoned.log.dirs: directories that get no new replicas."""
    directories: Sequence[Directory] | None = None
    """None: not known, as for a node that is away."""

    @property
    def is_draining(self) -> bool:
        """Whether it is to get nothing new: all of its directories are cordoned."""
        paths = [directory.path for directory in self.directories or ()]
        return are_all_cordoned(paths, self.cordoned)

    @property
    def is_alive(self) -> bool:
        return self.is_registered and not self.is_fenced

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it is asked for what only it knows; None for one that is away, and where nobody says it."""
        if not self.is_alive or self.host is None or self.port is None:
            return None
        return self.host, self.port

    @property
    def takes_replicas(self) -> bool:
        """Whether the controller gives it new ones: some directory that works is not cordoned."""
        working = [directory.path for directory in self.directories or () if directory.error is None]
        return self.is_alive and not self.is_draining and not are_all_cordoned(working, self.cordoned)

    @property
    def usable_bytes(self) -> int | None:
        """The room in all of its directories that work; None where it is not known."""
        known = [
            directory.usable_bytes
            for directory in self.directories or ()
            if directory.error is None and directory.usable_bytes is not None
        ]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, and what is known of its replicas."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    """All of them, also those that a reassignment adds or removes; the preferred leader first."""
    isr: tuple[int, ...] = ()
    leader: int | None = NO_LEADER
    """None where it is not known which of the nodes leads: one broker is shown for all of them."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    """Replicas whose nodes are away, or whose disks failed or take no more records."""
    is_internal: bool = False
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Bytes by node, as far as they are known."""
    size_bytes: int = 0
    """Bytes of one whole replica."""

    @property
    def place(self) -> Place:
        return self.topic, self.number

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once it is reassigned."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Those that should be in sync and are not; those that are being added need not be yet."""
        return tuple(
            replica for replica in self.replicas if replica not in self.isr and replica not in self.adding
        )


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All of it. Nodes are in the order of their ids, partitions in that of topics and numbers."""

    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    is_shown_as_one: bool = False
    """Clients see one broker for all nodes: who leads, and which directory is whose, is not known."""

    @property
    def by_id(self) -> dict[int, Node]:
        return {node.node_id: node for node in self.nodes}

    @property
    def by_place(self) -> dict[Place, Partition]:
        return {partition.place: partition for partition in self.partitions}

    def replicas_on(self, node_id: int) -> list[Partition]:
        return [partition for partition in self.partitions if node_id in partition.replicas]

    def bytes_on(self, node_id: int) -> int:
        """What it holds; where it does not say so itself, what its replicas come to when they are whole."""
        return sum(
            partition.sizes.get(node_id, partition.size_bytes)
            for partition in self.partitions
            if node_id in partition.replicas
        )


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition's replicas as they are and as they are to be."""

    topic: str
    number: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int = 0

    @property
    def place(self) -> Place:
        return self.topic, self.number

    @property
    def added(self) -> tuple[int, ...]:
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(node for node in self.before if node not in self.after)

    @property
    def bytes_moved(self) -> int:
        return self.size_bytes * len(self.added)
