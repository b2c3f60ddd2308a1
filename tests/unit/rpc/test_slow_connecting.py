"""A peer on a machine that is out of breath takes its time to answer a connection, and is waited for."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import grpc.aio

from barnabas.rpc.connections import open_channel

DELAY_SECONDS = 0.8
READY_SECONDS_MAX = 5.0


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    with contextlib.suppress(ConnectionError), contextlib.closing(writer):
        while data := await reader.read(65536):
            await asyncio.sleep(delay)
            writer.write(data)
            delay = 0.0


async def test_a_connection_that_is_slow_to_begin_is_not_given_up_again_and_again(tmp_path: Path) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{tmp_path}/server")
    await server.start()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(f"{tmp_path}/server")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(reader, to_server, 0.0))
            tasks.create_task(copy(from_server, writer, DELAY_SECONDS))

    slow = await asyncio.start_unix_server(forward, f"{tmp_path}/slow")
    channel = open_channel(f"unix:{tmp_path}/slow")
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            await channel.channel_ready()
    finally:
        await channel.close()
        slow.close()
        await server.stop(0)
