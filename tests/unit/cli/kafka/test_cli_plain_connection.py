"""One request and its answer: how long a broker may take for it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from barnabas.cli.kafka import plain_connection
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.plain_connection import PlainConnection, Unanswered


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_broker_that_takes_the_connection_and_says_nothing(listening: socket.socket) -> None:
    address = listening.getsockname()
    with PlainConnection(Connection(""), *address) as broker, pytest.raises(Unanswered, match="timed out"):
        broker.versions(0.001)


def test_a_broker_that_dribbles_has_no_longer_than_one_that_is_silent(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, the answer does not."""
    seconds = iter(range(1_000))
    monkeypatch.setattr(plain_connection.time, "monotonic", lambda: float(next(seconds)))
    with PlainConnection(Connection(""), *listening.getsockname()) as broker:
        peer, _ = listening.accept()
        monkeypatch.setattr(socket.socket, "recv", lambda self, size: next(answer))
        answer = iter([struct.pack(">i", 1_000), *(b"x" for _ in range(1_000))])
        with peer, pytest.raises(Unanswered, match="timed out"):
            broker.versions(20.0)
    assert len(list(answer)) > 900
