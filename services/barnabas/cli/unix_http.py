"""HTTP over a unix socket: how the supervisor asks its services what they say of themselves."""

from __future__ import annotations

import asyncio
from typing import Final

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The longest answer that is read; a service's metrics are a few hundred kilobytes at most."""

ANSWER_SECONDS_MAX: Final = 2.0


async def get(socket_path: str, target: str) -> tuple[int, bytes]:
    """The status and body of `GET target` at the HTTP server behind `socket_path`; raises as `ask` does."""
    return await ask(socket_path, "GET", target)


async def ask(
    socket_path: str,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    seconds_max: float = ANSWER_SECONDS_MAX,
) -> tuple[int, bytes]:
    """The status and body of a request at the HTTP server behind `socket_path`.

    Raises OSError when it does not answer in time, or not with HTTP.
    """
    try:
        async with asyncio.timeout(seconds_max):
            reader, writer = await asyncio.open_unix_connection(socket_path)
            try:
                # HTTP/1.0: the body comes in one piece and ends with the connection.
                head = f"{method} {target} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                answer = await _read_all(reader)
            finally:
                writer.close()
    except TimeoutError as error:
        raise OSError(f"no answer within {seconds_max:g} s") from error
    answer_head, separator, answer_body = answer.partition(b"\r\n\r\n")
    words = answer_head.split(maxsplit=2)
    if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise OSError("the answer is not HTTP")
    return int(words[1]), answer_body


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    pieces = bytearray()
    while piece := await reader.read(65_536):
        pieces += piece
        if len(pieces) > ANSWER_BYTES_MAX:
            raise OSError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(pieces)
