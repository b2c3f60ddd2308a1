"""Moves carried out: a bounded number of partitions at a time, watched until they are done.

Nothing is kept but in the cluster: whoever stops here, by Ctrl-C or a broken connection, loses only the sight of it.
What was begun goes on; a later run plans from what it then finds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.cli.balance.cluster_state import Move, Place
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import describe_partitions, read_nodes, read_sizes
from barnabas.cli.kafka.reassigning import Moving, Problem, begin_moves, by_topic, list_moving
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import counted
from barnabas.kernel.errors import ErrorCode

LOOK_SECONDS: Final = 0.5
"""Between two looks at what is under way."""

STANDSTILL_SECONDS: Final = 10.0
"""How long nothing moves before that is said."""

_AGAIN_LATER: Final = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.not_controller,
        ErrorCode.broker_not_available,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.unknown_server_error,
    }
)
_GONE: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})


class Movable(Protocol):
    """What a mover asks of a cluster."""

    def moving(self) -> Mapping[Place, Moving]: ...
    def replicas(self, places: Collection[Place]) -> Mapping[Place, tuple[int, ...]]: ...
    def begin(self, moves: Sequence[Move]) -> Mapping[Place, Problem]: ...
    def copied(self, moves: Collection[Move]) -> int | None: ...
    def away(self) -> Collection[int]: ...


@dataclass(slots=True)
class Progress:
    """How far it is: of the moves in all, and of their bytes as far as they are known."""

    done: int = 0
    bytes_done: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of the moves."""

    done: list[Move] = field(default_factory=list)
    gone: list[Move] = field(default_factory=list)
    """Their topics were deleted."""
    passed_over: list[Move] = field(default_factory=list)
    """Somebody else had changed, was changing, or gave up changing their replicas."""
    refused: dict[Place, Problem] = field(default_factory=dict)

    def joined(self, other: Outcome) -> Outcome:
        return Outcome(
            self.done + other.done,
            self.gone + other.gone,
            self.passed_over + other.passed_over,
            self.refused | other.refused,
        )


class Mover:
    """Owns what waits, what runs, and how long nothing has come forward."""

    def __init__(
        self,
        cluster: Movable,
        *,
        at_once: int,
        give_up_seconds: float,
        report: Callable[[Progress], None],
        remark: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._at_once = at_once
        self._give_up_seconds = give_up_seconds
        self._report = report
        self._remark = remark
        self._clock = clock
        self._pause = pause
        self._waiting: deque[Move] = deque()
        self._running: dict[Place, Move] = {}
        self._outcome = Outcome()
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._seen_at = clock()
        self._has_said = False

    def run(self, moves: Iterable[Move], under_way: Iterable[Move] = ()) -> Outcome:
        """Begin `moves` and wait for them, and for those that are `under_way`. Raises Refused when all stand still."""
        self._waiting.extend(moves)
        self._running.update((move.place, move) for move in under_way)
        self._seen_at = self._clock()
        while self._waiting or self._running:
            moving = self._cluster.moving()
            self._take_ended(moving)
            self._begin_some(moving)
            self._look()
            if self._waiting or self._running:
                self._pause(LOOK_SECONDS)
        return self._outcome

    def _take_ended(self, moving: Mapping[Place, Moving]) -> None:
        ended = [move for place, move in self._running.items() if place not in moving]
        if not ended:
            return
        replicas = self._cluster.replicas([move.place for move in ended])
        for move in ended:
            del self._running[move.place]
            now = replicas.get(move.place)
            if now is None:
                self._outcome.gone.append(move)
            elif set(now) == set(move.after):
                self._outcome.done.append(move)
            else:
                self._outcome.passed_over.append(move)

    def _begin_some(self, moving: Mapping[Place, Moving]) -> None:
        count = min(self._at_once - len(self._running), len(self._waiting))
        if count <= 0:
            return
        portion = [self._waiting.popleft() for _ in range(count)]
        replicas = self._cluster.replicas([move.place for move in portion])
        begun = [move for move in portion if self._is_to_begin(move, replicas.get(move.place), moving)]
        problems = self._cluster.begin(begun) if begun else {}
        for move in begun:
            problem = problems.get(move.place)
            if problem is None:
                self._running[move.place] = move
            elif problem.code in _GONE:
                self._outcome.gone.append(move)
            elif problem.code in _AGAIN_LATER:
                self._waiting.append(move)
            else:
                self._outcome.refused[move.place] = problem

    def _is_to_begin(self, move: Move, now: tuple[int, ...] | None, moving: Mapping[Place, Moving]) -> bool:
        """Whether the partition is as the plan believed it to be."""
        if now is None:
            self._outcome.gone.append(move)
        elif move.place in moving:
            if moving[move.place].target == move.after:
                self._running[move.place] = move
            else:
                self._outcome.passed_over.append(move)
        elif now == move.after:
            self._outcome.done.append(move)
        elif now != move.before:
            self._outcome.passed_over.append(move)
        else:
            return True
        return False

    def _look(self) -> None:
        """Tell how far it is; say so when it stands still, and in the end give up waiting. Raises Refused."""
        outcome, running = self._outcome, self._running.values()
        copied = self._cluster.copied(list(running)) or 0
        bytes_done = copied + sum(move.bytes_moved for move in outcome.done)
        ended = len(outcome.done) + len(outcome.gone) + len(outcome.passed_over) + len(outcome.refused)
        seen = (ended, len(running), bytes_done)
        now = self._clock()
        if seen != self._seen:
            self._seen, self._seen_at, self._has_said = seen, now, False
        standstill = now - self._seen_at if running or self._waiting else 0.0
        self._report(Progress(len(outcome.done), bytes_done, len(running), len(self._waiting)))
        if standstill >= self._give_up_seconds:
            raise Refused(
                f"nothing has moved for {standstill:.0f} s: {self._why()}. What was begun goes on without this command "
                "once it can; run it again to see it through, or `barnabas rebalance --cancel` gives it up"
            )
        if standstill >= STANDSTILL_SECONDS and not self._has_said:
            self._has_said = True
            self._remark(f"nothing has moved for {standstill:.0f} s: {self._why()}")

    def _why(self) -> str:
        away = self._cluster.away()
        waiting = [move for move in self._running.values() if set(move.after) & set(away)]
        if waiting:
            nodes = sorted({node for move in waiting for node in set(move.after) & set(away)})
            names = f"node {nodes[0]} is" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))} are"
            return f"{names} away, and {len(waiting)} of {len(self._running)} under way wait for that"
        if self._running:
            move = next(iter(self._running.values()))
            return (
                f"{counted(len(self._running), 'partition')} under way, such as {move.topic}-{move.number} to "
                f"{list(move.after)}; `barnabas doctor` may know why"
            )
        return "the controller does not begin what it is asked to"


class ClusterOfMoves:
    """The `Movable` of a real cluster."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._nodes, self._is_shown_as_one = read_nodes(administration)

    def moving(self) -> Mapping[Place, Moving]:
        return list_moving(self._administration)

    def replicas(self, places: Collection[Place]) -> dict[Place, tuple[int, ...]]:
        wanted = set(places)
        return {
            (str(topic.name), int(part.partition_index)): tuple(map(int, part.replica_nodes))
            for topic in describe_partitions(self._administration, sorted(by_topic(wanted)))
            for part in topic.partitions
            if (str(topic.name), int(part.partition_index)) in wanted
        }

    def begin(self, moves: Sequence[Move]) -> Mapping[Place, Problem]:
        return begin_moves(self._administration, moves)

    def copied(self, moves: Collection[Move]) -> int | None:
        """Bytes that the nodes which are added have so far; None where it cannot be known."""
        receivers = {node for move in moves for node in move.added}
        if self._is_shown_as_one or not receivers:
            return None
        topics = by_topic(move.place for move in moves)
        copied = 0
        for node in self._nodes:
            if node.node_id not in receivers or node.host is None:
                continue
            sizes = read_sizes(self._administration, node, topics)
            copied += sum(
                min(sizes.get(move.place, 0), move.size_bytes) for move in moves if node.node_id in move.added
            )
        return copied

    def away(self) -> list[int]:
        nodes, _ = read_nodes(self._administration)
        alive = {node.node_id for node in nodes if node.is_alive}
        return [node.node_id for node in self._nodes if node.node_id not in alive]
