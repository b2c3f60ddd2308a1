"""Which replicas of a node move to which of its log directories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from barnabas.cli.balance.cluster_state import Directory, Place
from barnabas.cli.balance.layout import REPLICA_COST_BYTES
from barnabas.cli.balance.planner import TOLERANCE


@dataclass(frozen=True, slots=True)
class Held:
    """A replica of a node, where it is, and where it is on its way to."""

    topic: str
    number: int
    path: str
    size_bytes: int = 0
    moving_to: str = ""
    copied_bytes: int = 0
    """Of a replica that moves: what its future replica has."""

    @property
    def place(self) -> Place:
        return self.topic, self.number

    @property
    def path_to_be(self) -> str:
        return self.moving_to or self.path

    @property
    def weight(self) -> int:
        return self.size_bytes + REPLICA_COST_BYTES


@dataclass(frozen=True, slots=True)
class Holding:
    """The log directories of one node, and what is in them."""

    directories: tuple[Directory, ...]
    replicas: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A replica that goes to another log directory of its node."""

    topic: str
    number: int
    before: str
    after: str
    size_bytes: int = 0

    @property
    def place(self) -> Place:
        return self.topic, self.number


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What is to be moved, and what nobody can take."""

    moves: tuple[Move, ...]
    under_way: tuple[Move, ...] = ()
    """What moves already, by an earlier run or by somebody else."""
    no_room: tuple[str, ...] = ()
    """Partitions that fit into no directory."""

    @property
    def bytes_moved(self) -> int:
        return sum(move.size_bytes for move in self.moves)


class _Draft:
    """Owns where the replicas are in a plan, and what each directory then holds and has room for."""

    def __init__(self, holding: Holding) -> None:
        self.takers = [
            each.path for each in holding.directories if each.error is None and not each.is_cordoned
        ]
        self.held = {replica.place: replica for replica in holding.replicas}
        self.paths = {replica.place: replica.path_to_be for replica in holding.replicas}
        self.loads = {each.path: 0 for each in holding.directories}
        self._room = {each.path: each.usable_bytes for each in holding.directories}
        for replica in holding.replicas:
            self.loads[replica.path_to_be] += replica.weight

    def has_room(self, path: str, replica: Held) -> bool:
        room = self._room[path]
        return room is None or room >= replica.size_bytes

    def move(self, replica: Held, path: str) -> None:
        room = self._room[path]
        if room is not None:
            self._room[path] = room - replica.size_bytes
        self.loads[self.paths[replica.place]] -= replica.weight
        self.loads[path] += replica.weight
        self.paths[replica.place] = path

    def plan(self, no_room: Iterable[Held] = ()) -> MovePlan:
        changed = [each for each in self.held.values() if self.paths[each.place] != each.path_to_be]
        moving = [each for each in self.held.values() if each.moving_to and each not in changed]
        return MovePlan(
            tuple(_move(each, self.paths[each.place]) for each in sorted(changed, key=_place)),
            tuple(_move(each, each.moving_to) for each in sorted(moving, key=_place)),
            tuple(f"{each.topic}-{each.number}" for each in sorted(no_room, key=_place)),
        )


def _place(replica: Held) -> Place:
    return replica.place


def _move(replica: Held, after: str) -> Move:
    return Move(replica.topic, replica.number, replica.path, after, replica.size_bytes)


def plan_moves(
    holding: Holding, *, source: str = "", target: str = "", topics: Collection[str] = ()
) -> MovePlan:
    """What is in `source`, or of `topics`, or all, goes to `target`.

    Without one each replica goes to the emptiest of the other directories that are not cordoned.
    """
    draft = _Draft(holding)
    wanted = [
        replica
        for replica in holding.replicas
        if source in ("", replica.path_to_be) and (not topics or replica.topic in topics)
    ]
    no_room: list[Held] = []
    for replica in _heaviest_first(wanted):
        if replica.path_to_be == target:
            continue
        others = [target] if target else [path for path in draft.takers if path != replica.path_to_be]
        free = [path for path in others if draft.has_room(path, replica)]
        if free:
            draft.move(replica, min(free, key=lambda path: (draft.loads[path], path)))
        else:
            no_room.append(replica)
    return draft.plan(no_room)


def plan_even(holding: Holding, tolerance: float = TOLERANCE) -> MovePlan:
    """What is in cordoned directories goes to the others, and from the fullest of these some to the emptiest.

    It ends when no two differ by more than `tolerance` of their mean, or every replica left is too large for that.
    """
    draft = _Draft(holding)
    no_room: list[Held] = []
    cordoned = {each.path for each in holding.directories if each.is_cordoned and each.error is None}
    for replica in _heaviest_first(each for each in holding.replicas if each.path_to_be in cordoned):
        free = [path for path in draft.takers if draft.has_room(path, replica)]
        if free:
            draft.move(replica, min(free, key=lambda path: (draft.loads[path], path)))
        else:
            no_room.append(replica)
    while len(draft.takers) > 1:
        emptiest, *_, fullest = sorted(draft.takers, key=lambda path: (draft.loads[path], path))
        apart = draft.loads[fullest] - draft.loads[emptiest]
        mean = sum(draft.loads[path] for path in draft.takers) / len(draft.takers)
        step = _step(draft, fullest, emptiest, apart) if apart > mean * tolerance else None
        if step is None:
            break
        draft.move(step, emptiest)
    return draft.plan(no_room)


def _step(draft: _Draft, fullest: str, emptiest: str, apart: int) -> Held | None:
    """The replica that brings the two closest to each other; none that brings them no closer."""
    fitting = [
        replica
        for replica in draft.held.values()
        if draft.paths[replica.place] == fullest
        and replica.weight < apart
        and draft.has_room(emptiest, replica)
    ]
    return min(fitting, key=lambda each: (abs(apart - 2 * each.weight), each.place), default=None)


def _heaviest_first(replicas: Iterable[Held]) -> Sequence[Held]:
    return sorted(replicas, key=lambda each: (-each.weight, each.place))
