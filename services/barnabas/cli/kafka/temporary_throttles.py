"""Throttles that a command sets for its own time: what was set before is there again when it ends.

A kill -9, or a cluster that is away when the command ends, leaves them: `barnabas doctor` finds them.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NoReturn, Self

from barnabas.cli.balance.cluster_state import ClusterState, Node, Reassignment
from barnabas.cli.balance.health import MOVES_RATE
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.config_values import (
    change_broker,
    change_topic,
    own_broker_values,
    topic_values,
)
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.throttling import RATES, REPLICAS, throttled_replicas
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import counted, say

ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What ends a command besides Ctrl-C: a time limit around it, a terminal that is closed."""

Values = Mapping[str, str | None]
"""Settings by name; None where there is none, or is to be none."""


@dataclass(slots=True)
class _Throttled:
    """A topic or a broker that was given throttles."""

    name: str
    """`topic NAME` or `broker N`."""
    change: Callable[[Values], None]
    before: dict[str, str | None] = field(default_factory=dict)
    """What it had, of its own, of each setting that is changed."""

    @property
    def had(self) -> dict[str, str]:
        return {key: value for key, value in self.before.items() if value is not None}

    def to_put_back(self) -> str:
        """The command that does the same."""
        kind, name = self.name.split(" ", 1)
        words = ["barnabas", "configs", "--alter", f"--{kind}", name]
        had = [f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in self.had.items()]
        had_not = [key for key in self.before if key not in self.had]
        words += ["--add-config", ",".join(had)] if had else []
        words += ["--delete-config", ",".join(had_not)] if had_not else []
        return shlex.join(words)


class TemporaryThrottles:
    """Owns what topics and brokers had before they were given other throttles. A context manager.

    However the context ends, by Ctrl-C and by one of `ENDINGS` too, all of it is put back; only Ctrl-C breaks that off.
    Raises Refused where it cannot be done and nothing else went wrong.
    """

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._throttled: dict[str, _Throttled] = {}
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in ENDINGS:
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup makes it another
                self._handlers[number] = signal.signal(number, _end)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number in self._handlers:
            # A terminal that is closed says so twice, by its shell and by itself.
            signal.signal(number, signal.SIG_IGN)
        try:
            left = list(self._put_back())
        except KeyboardInterrupt:
            say("broken off before all throttles were put back: `barnabas doctor` shows what is left of them")
            raise
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        if left and kind is None:
            *others, last = left
            self._tell(others, is_broken_off=False)
            raise Refused(last)
        self._tell(left, is_broken_off=kind is not None)

    def throttle_reassignments(
        self, state: ClusterState, reassignments: Iterable[Reassignment], bytes_per_second: int
    ) -> None:
        """Hold these reassignments to so many bytes a second for each broker, in and out. Raises Refused."""
        copying = [reassignment for reassignment in reassignments if reassignment.added]
        replicas = throttled_replicas(copying)
        known = topic_values(self._administration, replicas, REPLICAS)
        for topic, found in known.items():  # those that were deleted meanwhile are not among them
            change = partial(change_topic, self._administration, topic)
            self._set(_Throttled(f"topic {topic}", change), found, replicas[topic])
        involved = {node for each in copying for node in (*each.before, *each.after)}
        for node in state.nodes:
            if node.node_id in involved and node.is_alive:
                self._set_broker(node, dict.fromkeys(RATES, str(bytes_per_second)))

    def throttle_moves(self, node: Node, bytes_per_second: int) -> None:
        """Hold moves between the log directories of a node to so many bytes a second. Raises Refused."""
        self._set_broker(node, {MOVES_RATE: str(bytes_per_second)})

    def _set_broker(self, node: Node, values: Mapping[str, str]) -> None:
        throttled = _Throttled(f"broker {node.node_id}", partial(_change_broker, self._administration, node))
        is_known = throttled.name in self._throttled
        found = {} if is_known else own_broker_values(self._administration, node, sorted(values))
        self._set(throttled, found, values)

    def _set(self, throttled: _Throttled, found: Mapping[str, str], values: Mapping[str, str]) -> None:
        """`found` is what is there: remembered before it is changed, as a change may be done though nobody says so."""
        throttled = self._throttled.setdefault(throttled.name, throttled)
        throttled.before = {name: found.get(name) or None for name in values} | throttled.before
        throttled.change(values)

    def _put_back(self) -> Iterator[str]:
        """Put all of it back; a line for each resource that keeps what it was given."""
        for throttled in self._throttled.values():
            try:
                throttled.change(throttled.before)
            except Refused as error:
                yield (
                    f"{throttled.name} keeps the throttle of this command ({error}): `{throttled.to_put_back()}` "
                    "puts back what was there"
                )

    def _tell(self, left: Sequence[str], *, is_broken_off: bool) -> None:
        for line in left:
            say(line)
        had = [
            f"{throttled.name} {name}={value}"
            for throttled in self._throttled.values()
            for name, value in throttled.had.items()
        ]
        if had and not left:
            say(
                f"put back {counted(len(had), 'throttle')} from before this command, such as {had[0]}: `barnabas "
                "configs --describe` shows them, and `barnabas doctor` once nothing needs them"
            )
        if self._throttled and is_broken_off and not left:
            say(
                "the throttle of this command is gone: what was begun goes on at the rates from before, until the "
                "same command is run again"
            )


def _change_broker(administration: Administration, node: Node, values: Values) -> None:
    """As `change_broker`, through any other where the node itself does not answer. Raises Refused."""
    try:
        change_broker(administration, node, values)
    except Unanswered:
        change_broker(administration, replace(node, is_fenced=True), values)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
