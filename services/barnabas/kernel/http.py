"""The HTTP endpoints that every service has: `/metrics`, `/healthz` and `/readyz`.

`/metrics` is in Prometheus' text format. `/readyz` answers 503 with the unmet conditions, one a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from email.utils import formatdate
from types import MappingProxyType
from typing import Final

import uvicorn
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnabas.kernel.health import Health
from barnabas.kernel.logs import get_logger

Endpoint = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""(method, body) to (status, text)."""

Measurement = Callable[[], Awaitable[None]]
"""What is to be measured right before a scrape."""

MEASUREMENT_SECONDS_MAX: Final = 2.0
"""A scrape waits no longer for a measurement; Prometheus gives up after 10 seconds by default."""

log = get_logger("http")

_METHODS: Final = ("GET", "PUT", "POST", "DELETE")


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the service stops everything in its own order. And without its looks,
    ten a second, whether it is to stop: a service that has nothing to do is to cost next to nothing.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.server_state.default_headers = self.config.encoded_headers
        await self._stopping.wait()

    def begin_stopping(self) -> None:
        self.should_exit = True
        self._stopping.set()


def _dated(application: ASGIApp) -> ASGIApp:
    """The application with the date in its answers (RFC 9110, 6.6.1). Uvicorn sets its own in the looks that `_Server`
    leaves out.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"date", formatdate(usegmt=True).encode())]
            await send(message)

        await application(scope, receive, send_dated)

    return answer


def health_application(
    health: Health,
    render_metrics: Callable[[], Awaitable[bytes]],
    endpoints: Mapping[str, Endpoint] = MappingProxyType({}),
    measurements: Sequence[Measurement] = (),
) -> Starlette:
    """The ASGI application that serves the three endpoints and those of the service's own.

    `measurements` are taken before each scrape; one that fails or takes long does not keep the others from it.
    """

    async def metrics(_: Request) -> Response:
        await asyncio.gather(*map(_measure, measurements))
        return Response(await render_metrics(), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        unmet = health.unmet()
        if unmet:
            return PlainTextResponse("".join(f"not ready: {name}\n" for name in unmet), status_code=503)
        return PlainTextResponse("ready\n")

    own = [Route(path, _route(answer), methods=_METHODS) for path, answer in endpoints.items()]
    return Starlette(
        routes=[Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz), *own]
    )


async def _measure(measurement: Measurement) -> None:
    try:
        async with asyncio.timeout(MEASUREMENT_SECONDS_MAX):
            await measurement()
    except TimeoutError:
        log.warning("a measurement took too long", seconds=MEASUREMENT_SECONDS_MAX)
    except Exception:
        log.exception("a measurement failed")


def _route(answer: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        status, text = await answer(request.method, await request.body())
        return PlainTextResponse(text, status_code=status)

    return handle


@contextlib.asynccontextmanager
async def serve_http(application: Starlette, address: str) -> AsyncIterator[None]:
    """Serve `application` at `host:port` or `unix:/path` while the context is open; empty address: not at all.

    Raises OSError when the address cannot be bound.
    """
    if not address:
        yield
        return
    unix_path = address.removeprefix("unix:") if address.startswith("unix:") else None
    host, _, port = address.rpartition(":")
    config = uvicorn.Config(
        _dated(application),
        date_header=False,
        host=host,
        port=0 if unix_path else int(port),
        uds=unix_path,
        # Named, because it would look for others first, each time in the whole path of modules.
        http=H11Protocol,
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    sock = None if unix_path else _bind(host, int(port))
    task = asyncio.create_task(server.serve(sockets=[sock] if sock else None), name="http")
    try:
        yield
    finally:
        server.begin_stopping()
        await task


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), port))
    except OSError:
        sock.close()
        raise
    return sock
