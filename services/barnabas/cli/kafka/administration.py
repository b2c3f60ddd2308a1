"""Requests to a cluster that lasts longer than a connection: of a command that goes on for minutes, or hours."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from barnabas.cli.balance.cluster_state import Node
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection, addresses_of, check_reachable
from barnabas.cli.kafka.plain_connection import PlainConnection, Unanswered, request_schema
from barnabas.cli.refusal import Refused

AWAY_SECONDS_MAX: Final = 60.0
"""How long no broker at all may answer before a command gives up: brokers restart one after another."""

SILENT_SECONDS: Final = 30.0
"""How long a broker that gave no answer is not asked for what only it knows: each time would be a wait."""

FIRST_SECONDS_MAX: Final = 15.0
"""How long nobody may answer from the first: there is nothing that was begun, and the address may be wrong."""

LOOK_SECONDS_MAX: Final = 5.0
"""How long a command that only looks waits for one broker: its answer is not worth keeping back those of the others."""

BROKERS_AT_ONCE: Final = 32
"""Brokers that are asked at the same time, at most."""

PAUSE_SECONDS: Final = 0.5

Make = Callable[[Any], Any]
"""Makes a request of its schema, which differs from version to version."""
Address = tuple[str, int]
ResultT = TypeVar("ResultT")


class Administration:
    """Owns the connections to a cluster's brokers, and who gave no answer when. A context manager.

    Requests go to any broker; when that gives no answer, to the next one. A request may so be done twice: only
    those are sent here that can be. One broker may take `broker_seconds` for an answer of its own.
    """

    def __init__(self, connection: Connection, broker_seconds: float = ANSWER_SECONDS_MAX) -> None:
        self.connection = connection
        self._broker_seconds = broker_seconds
        self._has_answered = False
        self.brokers: list[Address] = []
        """Where other brokers are, as far as it is known: used when the addresses that the user gave do not answer."""
        self._open: dict[Address, PlainConnection] = {}
        self._any: PlainConnection | None = None
        self._any_address: Address | None = None
        self._silent_since: dict[Address, float] = {}

    def __enter__(self) -> Self:
        check_reachable(self.connection.bootstrap)
        return self

    def __exit__(self, *_: object) -> None:
        for broker in (self._any, *self._open.values()):
            if broker is not None:
                broker.__exit__()

    def ask(self, api_key: int, version: int, make: Make) -> Any:
        """The answer of any broker, in `version` or the highest below it that it serves. Raises Refused."""
        begun = time.monotonic()
        while True:
            try:
                broker = self._broker()
                broker.versions(self._broker_seconds)
                answer = _ask(broker, api_key, version, make)
            except Unanswered as error:
                self._leave_broker()
                self._check_patience(time.monotonic() - begun, error)
                time.sleep(PAUSE_SECONDS)
            else:
                self._has_answered = True
                return answer

    def _check_patience(self, seconds: float, error: Unanswered) -> None:
        """Raise Refused where nobody has answered for too long, and everybody was asked."""
        if not self._silent_since.keys() >= self._known().keys():
            return
        if not self._has_answered and seconds >= FIRST_SECONDS_MAX:
            raise Refused(
                f"{self.connection.bootstrap} takes connections and does not answer ({error}): is it a Kafka broker, "
                "and running? --bootstrap-server may name several, of which one that answers is enough"
            ) from error
        if seconds >= AWAY_SECONDS_MAX:
            raise Refused(
                f"no broker has answered for {AWAY_SECONDS_MAX:g} s ({error}): what was begun goes on without this "
                "command; run it again to see it through"
            ) from error

    def ask_each(self, nodes: Iterable[Node], ask: Callable[[Node], ResultT]) -> dict[int, ResultT]:
        """By id, what `ask` returns for each node that is alive, all asked at once: who is frozen holds up nobody.

        `ask` sends by `ask_broker`, to that node alone; what it raises is raised here.
        """
        by_address: dict[Address, list[Node]] = {}
        for node in nodes:
            if node.address is not None:
                by_address.setdefault(node.address, []).append(node)

        def ask_at(those: Sequence[Node]) -> list[tuple[int, ResultT]]:
            return [(node.node_id, ask(node)) for node in those]

        with ThreadPoolExecutor(BROKERS_AT_ONCE, "broker") as pool:
            return dict(itertools.chain.from_iterable(pool.map(ask_at, by_address.values())))

    def ask_broker(self, address: Address, api_key: int, version: int, make: Make) -> Any:
        """The answer of the broker at this address. Raises Unanswered where it gives none within `broker_seconds`."""
        silent_since = self._silent_since.get(address)
        if silent_since is not None and time.monotonic() - silent_since < SILENT_SECONDS:
            raise Unanswered(f"{address[0]}:{address[1]} gave no answer a moment ago")
        broker = self._open.pop(address, None)
        if broker is not None:
            try:
                answer = _ask(broker, api_key, version, make, self._broker_seconds)
            except Unanswered:
                broker.__exit__()  # it may have restarted since
            else:
                self._open[address] = broker
                return answer
        try:
            broker = PlainConnection(self.connection, *address)
            try:
                answer = _ask(broker, api_key, version, make, self._broker_seconds)
            except Refused:
                broker.__exit__()
                raise
        except Unanswered:
            self._silent_since[address] = time.monotonic()
            raise
        self._open[address] = broker
        return answer

    def _broker(self) -> PlainConnection:
        """Any broker: one that has never failed to answer, else the one that failed longest ago."""
        refused = Unanswered("no address")
        for address in sorted(self._known(), key=lambda each: self._silent_since.get(each, 0.0)):
            if self._any is not None:
                break
            try:
                self._any, self._any_address = PlainConnection(self.connection, *address), address
            except Unanswered as error:
                self._silent_since[address] = time.monotonic()
                refused = error
        if self._any is None:
            raise refused
        return self._any

    def _known(self) -> dict[Address, None]:
        """Where brokers may be, in the order in which they are asked."""
        return dict.fromkeys((*addresses_of(self.connection.bootstrap), *self.brokers))

    def _leave_broker(self) -> None:
        if self._any is not None and self._any_address is not None:
            self._silent_since[self._any_address] = time.monotonic()
            self._any.__exit__()
        self._any = None


def _ask(
    broker: PlainConnection,
    api_key: int,
    version: int,
    make: Make,
    seconds: float = ANSWER_SECONDS_MAX,
) -> Any:
    highest = broker.versions(seconds).get(api_key, (version, version))[1]
    return broker.ask(make(request_schema(api_key, min(version, highest))), seconds)
