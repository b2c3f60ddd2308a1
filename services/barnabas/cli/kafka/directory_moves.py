"""Moves between the log directories of one node (AlterReplicaLogDirs): begun all at once, watched until they are done.

The node carries them out one after another to each directory, and remembers them over a restart. Whoever stops here
loses only the sight of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from barnabas.cli.balance.cluster_state import Node, Place
from barnabas.cli.balance.directory_moves import Held, Holding, Move
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import describe_log_dirs, directories_of
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.reassigner import LOOK_SECONDS, STANDSTILL_SECONDS, Progress
from barnabas.cli.kafka.reassigning import Problem, by_topic
from barnabas.cli.kafka.requests import ALTER_REPLICA_LOG_DIRS, nested
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import counted
from barnabas.kernel.errors import ErrorCode


@dataclass(slots=True)
class MovesOutcome:
    """What became of the moves."""

    done: list[Move] = field(default_factory=list)
    ended: list[Move] = field(default_factory=list)
    """Without having moved: a disk failed, somebody asked for another directory, or the replica has left the node."""
    refused: dict[Place, Problem] = field(default_factory=dict)


class Movable(Protocol):
    """What moves ask of a node."""

    def holding(self, places: Collection[Place]) -> Holding | None: ...
    def begin(self, moves: Sequence[Move]) -> Mapping[Place, Problem]: ...


class NodeOfMoves:
    """The `Movable` of a real node."""

    def __init__(self, administration: Administration, node: Node) -> None:
        self._administration = administration
        self._node = node

    def holding(self, places: Collection[Place] = ()) -> Holding | None:
        """Its directories and what is in them, of these partitions or of all; None where it does not answer."""
        answer = describe_log_dirs(self._administration, self._node, by_topic(places) if places else None)
        directories = directories_of(answer)
        if directories is None:
            return None
        current: dict[Place, Held] = {}
        future: dict[Place, tuple[str, int]] = {}
        for result in answer.results:
            for topic in result.topics:
                for part in topic.partitions:
                    place = (str(topic.name), int(part.partition_index))
                    if part.is_future_key:
                        future[place] = (str(result.log_dir), int(part.partition_size))
                    else:
                        current[place] = Held(*place, str(result.log_dir), int(part.partition_size))
        replicas = tuple(
            Held(*place, held.path, held.size_bytes, *future.get(place, ()))
            for place, held in sorted(current.items())
        )
        return Holding(tuple(directories), replicas)

    def begin(self, moves: Sequence[Move]) -> dict[Place, Problem]:
        """Ask for these moves; what was refused, with the reason."""
        paths = sorted({move.after for move in moves})
        places = {path: by_topic(move.place for move in moves if move.after == path) for path in paths}

        def make(schema: Any) -> Any:
            directory = nested(schema, "dirs")
            topic = nested(directory, "topics")
            return schema(
                dirs=tuple(
                    directory(
                        path=path,
                        topics=tuple(
                            topic(name=name, partitions=tuple(numbers)) for name, numbers in topics.items()
                        ),
                    )
                    for path, topics in places.items()
                )
            )

        assert self._node.address is not None
        answer = self._administration.ask_broker(self._node.address, ALTER_REPLICA_LOG_DIRS, 2, make)
        return {
            (str(topic.topic_name), int(part.partition_index)): Problem(ErrorCode(int(part.error_code)), "")
            for topic in answer.results
            for part in topic.partitions
            if part.error_code != 0
        }


def carry_out(
    node: Movable,
    moves: Sequence[Move],
    under_way: Sequence[Move],
    *,
    give_up_seconds: float,
    report: Callable[[Progress], None],
    remark: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> MovesOutcome:
    """Begin `moves` and wait for them, and for those that are `under_way`.

    Raises Refused when nothing comes forward.
    """
    outcome = MovesOutcome(refused=dict(node.begin(moves)) if moves else {})
    running = {move.place: move for move in (*moves, *under_way) if move.place not in outcome.refused}
    seen, seen_at, has_said = (-1, -1), clock(), False
    while running:
        copied = _take_ended(node, running, outcome)
        bytes_done = copied + sum(move.size_bytes for move in outcome.done)
        report(Progress(len(outcome.done), bytes_done, len(running), 0))
        if (len(running), bytes_done) != seen:
            seen, seen_at, has_said = (len(running), bytes_done), clock(), False
        standstill = clock() - seen_at
        if standstill >= give_up_seconds:
            raise Refused(
                f"nothing has moved for {standstill:.0f} s, with {counted(len(running), 'replica')} under way: "
                "the node goes on without this command once it can; run it again to see it through"
            )
        if standstill >= STANDSTILL_SECONDS and not has_said:
            has_said = True
            remark(f"nothing has moved for {standstill:.0f} s: see the node's log, and its throttle")
        if running:
            pause(LOOK_SECONDS)
    return outcome


def _take_ended(node: Movable, running: dict[Place, Move], outcome: MovesOutcome) -> int:
    """Those that do not run any more leave `running`; how many bytes the others' future replicas have."""
    holding = node.holding(running.keys())
    if holding is None:
        return 0  # it restarts, maybe: then it goes on where it was
    held = {replica.place: replica for replica in holding.replicas}
    copied = 0
    for place, move in list(running.items()):
        replica = held.get(place)
        if replica is not None and replica.moving_to == move.after:
            copied += min(replica.copied_bytes, move.size_bytes)
            continue
        del running[place]
        is_there = replica is not None and replica.path == move.after and not replica.moving_to
        (outcome.done if is_there else outcome.ended).append(move)
    return copied


def read_holding(administration: Administration, node: Node) -> Holding:
    """What a node has in its directories. Raises Refused where it does not say so."""
    holding = NodeOfMoves(administration, node).holding() if node.address is not None else None
    if holding is None:
        raise Unanswered(f"node {node.node_id} does not say what is in its log directories: is it running?")
    return holding
