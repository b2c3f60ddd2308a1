"""Reassignments carried out: a bounded number of partitions at a time, watched until they are done.

Nothing is kept but in the cluster: whoever stops here, by Ctrl-C or a broken connection, loses only the sight of it.
What was begun goes on; a later run plans from what it then finds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.cli.balance.cluster_state import Place, Reassignment
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import describe_partitions, read_nodes, read_sizes
from barnabas.cli.kafka.reassigning import (
    Problem,
    Reassigning,
    begin_reassignments,
    by_topic,
    list_reassigning,
)
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


class Reassignable(Protocol):
    """What a reassigner asks of a cluster."""

    def reassigning(self) -> Mapping[Place, Reassigning]: ...
    def replicas(self, places: Collection[Place]) -> Mapping[Place, tuple[int, ...]]: ...
    def begin(self, reassignments: Sequence[Reassignment]) -> Mapping[Place, Problem]: ...
    def copied(self, reassignments: Collection[Reassignment]) -> int | None: ...
    def away(self) -> Collection[int]: ...


@dataclass(slots=True)
class Progress:
    """How far it is: of the reassignments in all, and of their bytes as far as they are known."""

    done: int = 0
    bytes_done: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of the reassignments."""

    done: list[Reassignment] = field(default_factory=list)
    gone: list[Reassignment] = field(default_factory=list)
    """Their topics were deleted."""
    passed_over: list[Reassignment] = field(default_factory=list)
    """Somebody else had changed, or was changing, their replicas."""
    given_up: list[Reassignment] = field(default_factory=list)
    """Somebody gave them up while they were under way: the replicas are as before."""
    refused: dict[Place, Problem] = field(default_factory=dict)

    @property
    def ended(self) -> int:
        return sum(map(len, (self.done, self.gone, self.passed_over, self.given_up, self.refused)))

    @property
    def is_complete(self) -> bool:
        """What was deleted meanwhile is no loss."""
        return not (self.passed_over or self.given_up or self.refused)

    def joined(self, other: Outcome) -> Outcome:
        return Outcome(
            self.done + other.done,
            self.gone + other.gone,
            self.passed_over + other.passed_over,
            self.given_up + other.given_up,
            self.refused | other.refused,
        )


class Reassigner:
    """Owns what waits, what runs, and how long nothing has come forward."""

    def __init__(
        self,
        cluster: Reassignable,
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
        self._waiting: deque[Reassignment] = deque()
        self._running: dict[Place, Reassignment] = {}
        self._outcome = Outcome()
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._seen_at = clock()
        self._has_said = False

    def run(self, reassignments: Iterable[Reassignment], under_way: Iterable[Reassignment] = ()) -> Outcome:
        """Begin `reassignments` and wait for them, and for those that are `under_way`.

        Raises Refused when all stand still.
        """
        self._waiting.extend(reassignments)
        self._running.update((reassignment.place, reassignment) for reassignment in under_way)
        self._seen_at = self._clock()
        while self._waiting or self._running:
            reassigning = self._cluster.reassigning()
            self._take_ended(reassigning)
            self._begin_some(reassigning)
            self._look()
            if self._waiting or self._running:
                self._pause(LOOK_SECONDS)
        return self._outcome

    def _take_ended(self, reassigning: Mapping[Place, Reassigning]) -> None:
        ended = [reassignment for place, reassignment in self._running.items() if place not in reassigning]
        if not ended:
            return
        replicas = self._cluster.replicas([reassignment.place for reassignment in ended])
        for reassignment in ended:
            del self._running[reassignment.place]
            now = replicas.get(reassignment.place)
            if now is None:
                self._outcome.gone.append(reassignment)
            elif set(now) == set(reassignment.after):
                self._outcome.done.append(reassignment)
            elif set(now) == set(reassignment.before):
                self._outcome.given_up.append(reassignment)
            else:
                self._outcome.passed_over.append(reassignment)

    def _begin_some(self, reassigning: Mapping[Place, Reassigning]) -> None:
        count = min(self._at_once - len(self._running), len(self._waiting))
        if count <= 0:
            return
        portion = [self._waiting.popleft() for _ in range(count)]
        replicas = self._cluster.replicas([reassignment.place for reassignment in portion])
        begun = [
            reassignment
            for reassignment in portion
            if self._is_to_begin(reassignment, replicas.get(reassignment.place), reassigning)
        ]
        problems = self._cluster.begin(begun) if begun else {}
        for reassignment in begun:
            problem = problems.get(reassignment.place)
            if problem is None:
                self._running[reassignment.place] = reassignment
            elif problem.code in _GONE:
                self._outcome.gone.append(reassignment)
            elif problem.code in _AGAIN_LATER:
                self._waiting.append(reassignment)
            else:
                self._outcome.refused[reassignment.place] = problem

    def _is_to_begin(
        self,
        reassignment: Reassignment,
        now: tuple[int, ...] | None,
        reassigning: Mapping[Place, Reassigning],
    ) -> bool:
        """Whether the partition is as the plan believed it to be."""
        if now is None:
            self._outcome.gone.append(reassignment)
        elif reassignment.place in reassigning:
            if reassigning[reassignment.place].target == reassignment.after:
                self._running[reassignment.place] = reassignment
            else:
                self._outcome.passed_over.append(reassignment)
        elif now == reassignment.after:
            self._outcome.done.append(reassignment)
        elif now != reassignment.before:
            self._outcome.passed_over.append(reassignment)
        else:
            return True
        return False

    def _look(self) -> None:
        """Tell how far it is; say so when it stands still, and in the end give up waiting. Raises Refused."""
        outcome, running = self._outcome, self._running.values()
        copied = self._cluster.copied(list(running)) or 0
        bytes_done = copied + sum(reassignment.bytes_moved for reassignment in outcome.done)
        seen = (outcome.ended, len(running), bytes_done)
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
        waiting = [
            reassignment for reassignment in self._running.values() if set(reassignment.after) & set(away)
        ]
        if waiting:
            nodes = sorted({node for reassignment in waiting for node in set(reassignment.after) & set(away)})
            names = f"node {nodes[0]} is" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))} are"
            return f"{names} away, and {len(waiting)} of {len(self._running)} under way wait for that"
        if self._running:
            reassignment = next(iter(self._running.values()))
            return (
                f"{counted(len(self._running), 'partition')} under way, such as {reassignment.topic}-"
                f"{reassignment.number} to {list(reassignment.after)}; `barnabas doctor` may know why"
            )
        return "the controller does not begin what it is asked to"


class ReassignableCluster:
    """The `Reassignable` of a real cluster."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._nodes, self._is_shown_as_one = read_nodes(administration)

    def reassigning(self) -> Mapping[Place, Reassigning]:
        return list_reassigning(self._administration)

    def replicas(self, places: Collection[Place]) -> dict[Place, tuple[int, ...]]:
        wanted = set(places)
        return {
            (str(topic.name), int(part.partition_index)): tuple(map(int, part.replica_nodes))
            for topic in describe_partitions(self._administration, sorted(by_topic(wanted)))
            for part in topic.partitions
            if (str(topic.name), int(part.partition_index)) in wanted
        }

    def begin(self, reassignments: Sequence[Reassignment]) -> Mapping[Place, Problem]:
        return begin_reassignments(self._administration, reassignments)

    def copied(self, reassignments: Collection[Reassignment]) -> int | None:
        """Bytes that the nodes which are added have so far; None where it cannot be known."""
        receivers = {node for reassignment in reassignments for node in reassignment.added}
        if self._is_shown_as_one or not receivers:
            return None
        topics = by_topic(reassignment.place for reassignment in reassignments)
        copied = 0
        for node in self._nodes:
            if node.node_id not in receivers or node.host is None:
                continue
            sizes = read_sizes(self._administration, node, topics)
            copied += sum(
                min(sizes.get(reassignment.place, 0), reassignment.size_bytes)
                for reassignment in reassignments
                if node.node_id in reassignment.added
            )
        return copied

    def away(self) -> list[int]:
        nodes, _ = read_nodes(self._administration)
        alive = {node.node_id for node in nodes if node.is_alive}
        return [node.node_id for node in self._nodes if node.node_id not in alive]
