"""Requests to a cluster that lasts longer than a connection: of a command that goes on for minutes, or hours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self

from barnabas.cli.kafka.connection import Connection, addresses_of, check_reachable
from barnabas.cli.kafka.plain_connection import PlainConnection, Unanswered, request_schema
from barnabas.cli.refusal import Refused

AWAY_SECONDS_MAX: Final = 60.0
"""How long no broker at all may answer before a command gives up: brokers restart one after another."""

SILENT_SECONDS: Final = 30.0
"""How long a broker that gave no answer is not asked for what only it knows: each time would be a wait."""

PAUSE_SECONDS: Final = 0.5

Make = Callable[[Any], Any]
"""Makes a request of its schema, which differs from version to version."""
Address = tuple[str, int]


class Administration:
    """Owns the connections to a cluster's brokers, and who gave no answer when. A context manager.

    Requests go to any broker; when that gives no answer, to the next one. A request may so be done twice: only
    those are sent here that can be.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
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
        give_up = time.monotonic() + AWAY_SECONDS_MAX
        while True:
            try:
                broker = self._broker()
                return _ask(broker, api_key, version, make)
            except Unanswered as error:
                self._leave_broker()
                if time.monotonic() >= give_up:
                    raise Refused(
                        f"no broker has answered for {AWAY_SECONDS_MAX:g} s ({error}): what was begun goes on without "
                        "this command; run it again to see it through"
                    ) from error
                time.sleep(PAUSE_SECONDS)

    def ask_broker(self, address: Address, api_key: int, version: int, make: Make) -> Any:
        """The answer of the broker at this address. Raises Unanswered where it gives none."""
        silent_since = self._silent_since.get(address)
        if silent_since is not None and time.monotonic() - silent_since < SILENT_SECONDS:
            raise Unanswered(f"{address[0]}:{address[1]} gave no answer a moment ago")
        broker = self._open.pop(address, None)
        if broker is not None:
            try:
                answer = _ask(broker, api_key, version, make)
            except Unanswered:
                broker.__exit__()  # it may have restarted since
            else:
                self._open[address] = broker
                return answer
        try:
            broker = PlainConnection(self.connection, *address)
            try:
                answer = _ask(broker, api_key, version, make)
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
        known = dict.fromkeys((*addresses_of(self.connection.bootstrap), *self.brokers))
        for address in sorted(known, key=lambda each: self._silent_since.get(each, 0.0)):
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

    def _leave_broker(self) -> None:
        if self._any is not None and self._any_address is not None:
            self._silent_since[self._any_address] = time.monotonic()
            self._any.__exit__()
        self._any = None


def _ask(broker: PlainConnection, api_key: int, version: int, make: Make) -> Any:
    highest = broker.versions().get(api_key, (version, version))[1]
    return broker.ask(make(request_schema(api_key, min(version, highest))))
