"""Requests to a cluster that lasts longer than a connection: of a command that goes on for minutes, or hours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self

from barnabas.cli.kafka.connection import Connection, addresses_of
from barnabas.cli.kafka.plain_connection import PlainConnection, Unanswered, open_bootstrap, request_schema
from barnabas.cli.refusal import Refused

AWAY_SECONDS_MAX: Final = 60.0
"""How long no broker at all may answer before a command gives up: brokers restart one after another."""

PAUSE_SECONDS: Final = 0.5

Make = Callable[[Any], Any]
"""Makes a request of its schema, which differs from version to version."""
Address = tuple[str, int]


class Administration:
    """Owns the connections to a cluster's brokers while a command runs. A context manager.

    Requests go to any broker; when that goes away, to the next one. A request may so be done twice: only those are sent
    here that can be.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.brokers: list[Address] = []
        """Where other brokers are, as far as it is known: used when the addresses that the user gave do not answer."""
        self._open: dict[Address, PlainConnection] = {}
        self._any: PlainConnection | None = None

    def __enter__(self) -> Self:
        self._any = open_bootstrap(self.connection)
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
                if self._any is not None:
                    self._any.__exit__()
                    self._any = None
                if time.monotonic() >= give_up:
                    raise Refused(
                        f"no broker has answered for {AWAY_SECONDS_MAX:g} s ({error}): what was begun goes on without "
                        "this command; run it again to see it through"
                    ) from error
                time.sleep(PAUSE_SECONDS)

    def ask_broker(self, address: Address, api_key: int, version: int, make: Make) -> Any:
        """The answer of the broker at this address. Raises Unanswered where it gives none."""
        broker = self._open.pop(address, None)
        if broker is not None:
            try:
                answer = _ask(broker, api_key, version, make)
            except Unanswered:
                broker.__exit__()  # it may have restarted since
            else:
                self._open[address] = broker
                return answer
        broker = PlainConnection(self.connection, *address)
        try:
            answer = _ask(broker, api_key, version, make)
        except Refused:
            broker.__exit__()
            raise
        self._open[address] = broker
        return answer

    def _broker(self) -> PlainConnection:
        refused = Unanswered("no address")
        for host, port in (*addresses_of(self.connection.bootstrap), *self.brokers):
            if self._any is not None:
                break
            try:
                self._any = PlainConnection(self.connection, host, port)
            except Unanswered as error:
                refused = error
        if self._any is None:
            raise refused
        return self._any


def _ask(broker: PlainConnection, api_key: int, version: int, make: Make) -> Any:
    highest = broker.versions().get(api_key, (version, version))[1]
    return broker.ask(make(request_schema(api_key, min(version, highest))))
