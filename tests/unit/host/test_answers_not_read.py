"""Clients that ask for much and read nothing: what is held for them, who is served beside them, what is given back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from gateway_harness import LISTENER, Gateway, node_record
from prometheus_client import CollectorRegistry
from storage_harness import StorageHarness, batch, hand_nothing_over, make_servicer, run_node, topic_records
from test_host_plain_fetch import BILLS, LEADER_EPOCH, fetch_frame, want

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.held import Reason
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.clients.unread_answers import UnreadAnswers, answer_share_bytes
from barnabas.gateway.faults.injection import Faults
from barnabas.host.local_node import LocalNode
from barnabas.rpc.network import GrpcNetwork
from barnabas.testing.ports import free_ports

MIB: Final = 1 << 20
BUDGET: Final = 48 * MIB
DEAF: Final = 40
ANSWER: Final = 8 * MIB
FETCH_VERSION: Final = 12
MARGIN: Final = 2 * ANSWER
"""Beyond the answers' share: what was on its way as it became full."""
ROUTES: Final = ("at once", "in the process", "over gRPC")


class ServedNode:
    """A gateway with real sockets over a storage node that has eight MiB of records, in batches of nearly one."""

    def __init__(self, node: StorageHarness, route: str) -> None:
        self.node = node
        self.route = route
        self.local = LocalNode(1)
        gateway = Gateway([node_record(1), *topic_records("bills", BILLS, 1, leader_epoch=LEADER_EPOCH)])
        self.unread = UnreadAnswers(answer_share_bytes(BUDGET))
        self.parts = replace(
            gateway.parts,
            budget=ByteBudget(BUDGET),
            unread_answers=self.unread,
        )
        if route == "over gRPC":
            gateway.links.nodes[1] = GrpcNetwork().connect_storage(node.address, answer_room=self.unread)
        else:
            self.local.read_within(self.unread)
            gateway.links.nodes[1] = self.local
        self.link = gateway.links.nodes[1]
        self.port = free_ports(1)
        at_once = self.local if route == "at once" else None
        listener = replace(LISTENER, port=self.port)
        self.sockets = Sockets(self.parts, (listener,), Faults(), CollectorRegistry(), at_once)

    @property
    def held_bytes(self) -> int:
        """What the sockets have not taken."""
        return sum(each._transport.get_write_buffer_size() for each in self.sockets._connections)

    @property
    def counts(self) -> tuple[int, int]:
        return self.unread.used_bytes, self.sockets._budget.used_bytes

    def ask(self) -> bytes:
        frame = fetch_frame(
            FETCH_VERSION, {"bills": [want(FETCH_VERSION, max_bytes=ANSWER)]}, max_bytes=ANSWER
        )
        return struct.pack(">i", len(frame)) + frame

    def deaf(self) -> socket.socket:
        """A client that asks and reads nothing, with little room in its kernel."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.port))
        client.sendall(self.ask())
        client.setblocking(False)
        return client

    async def fetch(self) -> int:
        """A client that reads asks once; returns how much it was answered with."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2 * ANSWER)
        writer.write(self.ask())
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()
        return int(size)

    async def settle(self) -> None:
        """Until nothing more happens to what is held."""
        before: Any = None
        while before != (before := (len(self.sockets._connections), self.held_bytes, self.counts)):
            await asyncio.sleep(0.1)


@pytest.fixture(params=ROUTES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServedNode]:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        records = topic_records("bills", BILLS, 1, leader_epoch=LEADER_EPOCH)
        node.apply(node_record(1), *records)
        await node.until_open()
        for _ in range(9):
            assert (await node.append(BILLS, batch(bytes(MIB - 1_000)))).error_code == 0
        made = ServedNode(node, request.param)
        async with (
            made.local.serve(make_servicer(node), node.replicas, hand_nothing_over),
            asyncio.timeout(60),
        ):
            await made.sockets.open(made.parts.metadata.image)
            for server in made.sockets._servers.values():
                # Of the connections to be, too: the kernel would take whole answers.
                server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            yield made
            await made.sockets.close()
            await made.link.close()


async def read_answer(client: socket.socket) -> int:
    """How large the next answer to a socket is, which is read to its end."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        size = 4 if len(data) < 4 else 4 + struct.unpack_from(">i", data)[0]
        more = await loop.sock_recv(client, min(MIB, size - len(data)))
        if not more:
            raise EOFError
        data += more
    return len(data)


@contextlib.contextmanager
def closing(clients: list[socket.socket]) -> Iterator[list[socket.socket]]:
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def test_what_deaf_clients_ask_for_stays_within_its_share(served: ServedNode) -> None:
    with closing([served.deaf() for _ in range(DEAF)]) as clients:
        while len(served.sockets._connections) < DEAF:
            await asyncio.sleep(0.01)
        while served.held_bytes <= ANSWER:
            await asyncio.sleep(0.01)
        await served.settle()
        assert served.held_bytes <= served.unread.bytes_max + MARGIN
        used, of_budget = served.counts
        assert served.held_bytes <= used <= of_budget <= served.unread.bytes_max + MARGIN
        for client in clients[::2]:
            client.close()
        reading = [asyncio.create_task(read_answer(client)) for client in clients[1::2]]
        answers = await asyncio.gather(*reading, return_exceptions=True)
    # Whoever held the others up for too long before was closed.
    assert {type(answer) for answer in answers} <= {int, ConnectionResetError, EOFError}
    while served.sockets._connections:
        await asyncio.sleep(0.01)
    assert served.counts == (0, 0)


async def test_an_answer_that_is_read_late_is_whole_and_counts_until_then(served: ServedNode) -> None:
    with closing([served.deaf()]) as (client,):
        while not served.unread.used_bytes:
            await asyncio.sleep(0.01)
        (connection,) = served.sockets._connections
        assert connection._reading.reason is Reason.ANSWERS_UNREAD
        client.sendall(served.ask())  # not read, and not answered, before the first is
        assert await read_answer(client) == (first := await read_answer(client)) > 5 * MIB
        while served.unread.used_bytes:
            await asyncio.sleep(0.01)
        assert (served.counts, connection._reading.reason) == ((0, 0), None)
        assert first <= ANSWER


async def test_who_reads_is_served_beside_clients_that_do_not(
    served: ServedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNREAD_SECONDS_MAX", 0.05)
    most = 0
    with closing([]) as clients:
        for _ in range(10):
            clients += [served.deaf() for _ in range(DEAF // 5)]
            while await served.fetch() < MIB // 2:
                pass  # the leader was late, on a busy machine: clients ask again
            most = max(most, served.held_bytes)
    assert ANSWER < most <= served.unread.bytes_max + MARGIN
