"""Storage nodes that take the batches of idempotent producers or refuse them, as chance has it.

Of each producer in each partition there is one log, the leader's. The other nodes have of it what was replicated: a
move takes the rest back. A log that has nothing of a producer takes any first sequence (KIP-360), so a node remembers
what it refused of such a producer, and takes nothing above that. The gateway has to see to the rest.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from functools import partial
from typing import Any, Final, NamedTuple

from gateway_harness import node_record
from produce_connection import Preparing
from resent import leads

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult
from barnabas.records.batch import parse_header

NOT_LEADER: Final = ErrorCode.not_leader_or_follower
OUT_OF_ORDER: Final = ErrorCode.out_of_order_sequence_number
FAILURES: Final = (
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas,
    ErrorCode.kafka_storage_error,
)
"""What a leader may say of any batch that it does not take."""

NODES: Final = range(1, 5)
"""So many that there is one, as a rule, that has never heard of a producer, nor refused anything of it."""

REFUSED_BY_LEADER_PROBABILITY: Final = 0.1
"""Of what comes to a leader: it does not know yet that it leads."""

FAILURE_PROBABILITIES: Final = (0.1, 0.5, 0.5)
"""Of what its log could take: few under one seed, many under another."""

REPLICATED_LATE_PROBABILITY: Final = 0.15
"""Of what was taken: its client is told that its time was over."""

UNLED_PROBABILITY: Final = 0.1
"""Of the partitions whose leaders the gateway hears of."""

Lane = tuple[int, int]
"""(producer id, partition): sequences are in order in each."""


class Trace:
    """Owns what happened under a seed, line by line, and what of it must not happen."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.faults: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    def blame(self, fault: str) -> None:
        self.faults.append(fault)
        self.note(f"FAULT: {fault}")


class Batch(NamedTuple):
    lane: Lane
    sequence: int
    is_behind_refused: bool
    """As the gateway says."""


class Append:
    """A request to a node."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches
        self.codes: list[ErrorCode] = []
        """What the node has to say of each, once it came there."""
        self.result: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()

    def __str__(self) -> str:
        shown = (
            f"{producer}/{partition}:{sequence}{' behind a refused one' if is_behind else ''}"
            for (producer, partition), sequence, is_behind in self.batches
        )
        return ", ".join(shown)

    def fail(self, error: Unreachable | OutcomeUnknown) -> None:
        self.result.set_exception(error)
        self.result.exception()  # nobody may wait for it any more


class Log:
    """What a partition has of a producer: its batches from sequence 0 on."""

    def __init__(self) -> None:
        self.end = -1
        """The last sequence; -1 where it does not know the producer."""
        self.replicated = -1
        """The last that no move takes back."""


class Node:
    """Owns what is on its way to one node, what that has not answered, and what it remembers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.on_the_way: list[Append] = []
        self.unanswered: list[Append] = []
        self.is_stalled = False
        """What is sent stays on its way."""
        self.has_room = True
        self._refused: dict[Lane, int] = {}
        """The lowest sequence, while it knows nothing of the producer."""

    def __str__(self) -> str:
        return f"node {self.number}"

    def remember(self, lane: Lane, sequence: int) -> None:
        self._refused[lane] = min(sequence, self._refused.get(lane, sequence))

    def forget(self, lane: Lane) -> None:
        """It knows the producer."""
        self._refused.pop(lane, None)

    def has_refused_before(self, lane: Lane, sequence: int) -> bool:
        return self._refused.get(lane, sequence) < sequence


class Nodes:
    """Owns the nodes, the logs, and who leads each partition, as it is and as the gateway has heard."""

    def __init__(self, run: Preparing, chance: random.Random, trace: Trace, partitions: int) -> None:
        self._run = run
        self._chance = chance
        self._trace = trace
        self.logs: defaultdict[Lane, Log] = defaultdict(Log)
        self._nodes = [Node(number) for number in NODES]
        self._leaders = [self._nodes[0]] * partitions
        self._failure_probability = chance.choice(FAILURE_PROBABILITIES)
        self._is_healed = False
        for node in self._nodes:
            stream = run.gateway.node(node.number).appends
            stream.send = partial(self._send, node)
            stream.has_room = partial(self._has_room, node)
        run.gateway.metadata.apply(*map(node_record, NODES))
        self.be_heard_of()

    def be_heard_of(self) -> None:
        """The gateway hears who leads by now, or that nobody does."""
        heard = [-1 if self._happens(UNLED_PROBABILITY) else leader.number for leader in self._leaders]
        leads(self._run, *heard)
        self._trace.note(f"  the gateway hears that {heard} lead")

    def move_any(self) -> None:
        """Another node leads a partition, with what was replicated, and perhaps some of what was about to be."""
        partition = self._chance.randrange(len(self._leaders))
        old = self._leaders[partition]
        new = self._chance.choice([node for node in self._nodes if node is not old])
        self._leaders[partition] = new
        for lane, log in self.logs.items():
            if lane[1] == partition:
                self._move(lane, log, old, new)
        ends = {lane[0]: log.end for lane, log in self.logs.items() if lane[1] == partition}
        self._trace.note(f"  {new} leads partition {partition} up to {ends}")

    def _move(self, lane: Lane, log: Log, old: Node, new: Node) -> None:
        for append in old.unanswered:
            for place, batch in enumerate(append.batches):
                is_open = batch.sequence > log.replicated and append.codes[place] is ErrorCode.none
                if batch.lane == lane and is_open:
                    append.codes[place] = NOT_LEADER
                    old.remember(lane, batch.sequence)
        any_end = self._chance.randint(log.replicated, log.end)
        end = self._chance.choice((log.replicated, any_end, log.end))
        if end < log.end:
            old.remember(lane, end + 1)
        if end >= 0:
            new.forget(lane)
        log.end = log.replicated = end

    def answer_any(self) -> None:
        node = self._any_node()
        if node.unanswered:
            self._answer(node, node.unanswered.pop(self._chance.randrange(len(node.unanswered))))

    def answer_all(self) -> None:
        for node in self._nodes:
            while node.unanswered:
                self._answer(node, node.unanswered.pop(0))

    def break_any(self) -> None:
        """A stream ends. Some of what was on its way comes there all the same; of more than that nobody knows."""
        node = self._any_node()
        lost = node.on_the_way[self._chance.randint(0, len(node.on_the_way)) :]
        del node.on_the_way[len(node.on_the_way) - len(lost) :]
        self._trace.note(f"  the stream to {node} breaks")
        self._deliver(node)
        unwritten = lost[self._chance.randint(0, len(lost)) :]
        for append in (*node.unanswered, *lost[: len(lost) - len(unwritten)]):
            append.fail(OutcomeUnknown("the stream broke"))
        for append in unwritten:
            append.fail(Unreachable("the stream broke before"))
        node.unanswered.clear()
        node.is_stalled = False

    def stall_any(self) -> None:
        """Or go on, where it is stalled."""
        node = self._any_node()
        node.is_stalled = not node.is_stalled
        if not node.is_stalled:
            self._deliver(node)

    def fill_any(self) -> None:
        """Or empty it, where there is no room."""
        node = self._any_node()
        node.has_room = not node.has_room
        self._trace.note(f"  {node} has {'' if node.has_room else 'no '}room")

    def heal(self) -> None:
        """From now on nothing fails by chance, and the gateway knows the leaders."""
        self._is_healed = True
        self._trace.note("all is well from now on")
        for node in self._nodes:
            node.has_room, node.is_stalled = True, False
            self._deliver(node)
        self.be_heard_of()

    def _any_node(self) -> Node:
        return self._chance.choice(self._nodes)

    def _happens(self, probability: float) -> bool:
        return not self._is_healed and self._chance.random() < probability

    def _has_room(self, node: Node, _size_bytes: int) -> bool:
        return node.has_room

    def _send(self, node: Node, request: Any, *_: Any) -> asyncio.Future[AppendResult]:
        headers = [parse_header(bytes(records)) for records in request.records]
        append = Append(
            [
                Batch((header.producer_id, item.partition), header.base_sequence, item.behind_refused)
                for header, item in zip(headers, request.partitions, strict=True)
            ]
        )
        node.on_the_way.append(append)
        self._trace.note(f"  to {node}{', which is stalled' if node.is_stalled else ''}: {append}")
        if not node.is_stalled:
            self._deliver(node)
        return append.result

    def _deliver(self, node: Node) -> None:
        for append in node.on_the_way:
            append.codes = [self._take(node, batch) for batch in append.batches]
            self._trace.note(f"  {node} got {append}: {', '.join(code.name for code in append.codes)}")
        node.unanswered += node.on_the_way
        node.on_the_way.clear()

    def _take(self, node: Node, batch: Batch) -> ErrorCode:
        log = self.logs[batch.lane]
        code = self._refusal(node, batch, log)
        if code is ErrorCode.none and batch.sequence > log.end:
            if batch.sequence != log.end + 1:
                self._trace.blame(f"{node} takes {batch} although its log ends with {log.end}")
            node.forget(batch.lane)
            log.end = batch.sequence
        elif code not in (ErrorCode.none, OUT_OF_ORDER):
            node.remember(batch.lane, batch.sequence)
        return code

    def _refusal(self, node: Node, batch: Batch, log: Log) -> ErrorCode:
        lane, sequence, is_behind_refused = batch
        is_known = log.end >= 0
        if self._leaders[lane[1]] is not node:
            return NOT_LEADER
        if is_behind_refused and not is_known:
            return OUT_OF_ORDER
        if self._happens(REFUSED_BY_LEADER_PROBABILITY):
            return NOT_LEADER
        if sequence > log.end + 1 if is_known else node.has_refused_before(lane, sequence):
            return OUT_OF_ORDER
        if sequence > log.end and self._happens(self._failure_probability):
            return self._chance.choice(FAILURES)
        return ErrorCode.none

    def _answer(self, node: Node, append: Append) -> None:
        for place, batch in enumerate(append.batches):
            if append.codes[place] is ErrorCode.none and self._happens(REPLICATED_LATE_PROBABILITY):
                append.codes[place] = ErrorCode.request_timed_out
            elif append.codes[place] is ErrorCode.none:
                log = self.logs[batch.lane]
                log.replicated = max(log.replicated, batch.sequence)
        self._trace.note(f"  {node} answers {append}: {', '.join(code.name for code in append.codes)}")
        append.result.set_result(
            AppendResult(partitions=[PartitionAppendResult(error_code=int(code)) for code in append.codes])
        )
