"""What the supervisor serves over HTTP: the whole cluster's readiness, metrics and processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import prometheus_client
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from barnabas.cli import unix_http
from barnabas.cli.merged_metrics import Page, merge_metrics
from barnabas.cli.supervisor import SupervisedService

if TYPE_CHECKING:
    from barnabas.cli.clock_control import ClockControl
    from barnabas.cli.fault_control import FaultControl


class ClusterControls(NamedTuple):
    """What tests may do to the cluster."""

    faults: FaultControl
    clock: ClockControl


def make_application(
    services: Sequence[SupervisedService], controls: ClusterControls | None = None
) -> Starlette:
    """`/healthz`, `/readyz`, `/metrics` and `/services` for the processes in `services`.

    With `controls` also `/faults`, `/clock`, and `/services/NAME/stop`, `kill` and `start`.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        """200 when every service is ready by its own account, else 503 and one line per reason."""
        unmet = "".join(await asyncio.gather(*map(_unmet, services)))
        return PlainTextResponse(unmet or "ready\n", status_code=503 if unmet else 200)

    async def metrics(_: Request) -> Response:
        pages = [page for page in await asyncio.gather(*map(_page, services)) if page]
        own = prometheus_client.generate_latest().decode()
        merged = merge_metrics([*pages, Page("supervisor", "supervisor", own)])
        return Response(merged + _render_states(services), media_type=CONTENT_TYPE_LATEST)

    async def list_services(_: Request) -> Response:
        return JSONResponse([_describe(service) for service in services])

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/services", list_services),
            *(_test_routes(services, controls) if controls is not None else ()),
        ]
    )


def _test_routes(services: Sequence[SupervisedService], controls: ClusterControls) -> list[Route]:
    return [*_service_routes(services), *_fault_routes(controls.faults), *_clock_routes(controls.clock)]


def _service_routes(services: Sequence[SupervisedService]) -> list[Route]:
    """Services that a test ends and starts."""
    by_name = {name: service for service in services for name in (service.spec.name, *service.spec.aliases)}

    async def hold_or_release(request: Request) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        if name not in by_name:
            known = ", ".join(by_name)
            return PlainTextResponse(f"no service is called {name}; there are {known}\n", status_code=404)
        if action == "start":
            by_name[name].release()
        elif action in _ENDINGS:
            await by_name[name].hold(_ENDINGS[action])
        else:
            return PlainTextResponse(f"a service cannot {action}: stop, kill or start it\n", status_code=404)
        return PlainTextResponse("ok\n")

    return [Route("/services/{name}/{action}", hold_or_release, methods=["POST"])]


def _fault_routes(faults: FaultControl) -> list[Route]:
    """What harms the cluster."""

    async def list_faults(_: Request) -> Response:
        return JSONResponse(faults.list_all())

    async def add_fault(request: Request) -> Response:
        from barnabas.gateway.faults.rule import FaultRefused

        try:
            return JSONResponse({"fault_id": await faults.add(await request.body())}, status_code=201)
        except FaultRefused as error:
            return PlainTextResponse(f"{error}\n", status_code=400)

    async def remove_fault(request: Request) -> Response:
        hits = await faults.remove(request.path_params["fault_id"])
        if hits is None:
            return PlainTextResponse("no such fault\n", status_code=404)
        return JSONResponse({"hits": hits})

    return [
        Route("/faults", list_faults),
        Route("/faults", add_fault, methods=["POST"]),
        Route("/faults/{fault_id:int}", remove_fault, methods=["DELETE"]),
    ]


def _clock_routes(clock: ClockControl) -> list[Route]:
    """The cluster's time: POST {"seconds": S} moves it, DELETE has it start from the machine's at the next start."""

    async def advance(request: Request) -> Response:
        from barnabas.kernel.movable_clock import ClockRefused

        try:
            return JSONResponse({"advanced_ms": await clock.advance(await request.body())})
        except ClockRefused as error:
            return PlainTextResponse(f"{error}\n", status_code=400)

    async def forget(_: Request) -> Response:
        await clock.forget()
        return PlainTextResponse("ok\n")

    return [Route("/clock", advance, methods=["POST"]), Route("/clock", forget, methods=["DELETE"])]


_ENDINGS: Final = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}


async def _unmet(service: SupervisedService) -> str:
    """Why `service` is not ready, one reason a line; empty when it is."""
    name = service.spec.name
    if not service.is_ready:
        return f"not ready: {name}: starting\n"
    try:
        status, body = await unix_http.get(service.spec.http_socket, "/readyz")
    except OSError as error:
        return f"not ready: {name}: {error}\n"
    if status == 200:
        return ""
    reasons = (line.removeprefix("not ready: ") for line in body.decode(errors="replace").splitlines())
    return "".join(f"not ready: {name}: {reason}\n" for reason in reasons)


async def _page(service: SupervisedService) -> Page | None:
    """The service's metrics; None when it does not answer, which `barnabas_service_ready` shows."""
    try:
        status, body = await unix_http.get(service.spec.http_socket, "/metrics")
    except OSError:
        return None
    return Page(service.spec.service, service.spec.name, body.decode()) if status == 200 else None


def _render_states(services: Sequence[SupervisedService]) -> bytes:
    registry = prometheus_client.CollectorRegistry()
    names = ("service", "instance")
    ready = prometheus_client.Gauge(
        "barnabas_service_ready", "Whether the process is ready", names, registry=registry
    )
    restarts = prometheus_client.Gauge(
        "barnabas_service_restarts", "Times the process died and was started again", names, registry=registry
    )
    for service in services:
        # What a process hosts is shown by itself too: alerts ask for gateways, storage nodes and coordinators.
        for labels in ((service.spec.service, service.spec.name), *service.spec.hosted):
            ready.labels(*labels).set(service.is_ready)
            restarts.labels(*labels).set(service.restarts)
    return prometheus_client.generate_latest(registry)


def _describe(service: SupervisedService) -> dict[str, object]:
    return {
        "name": service.spec.name,
        "aliases": list(service.spec.aliases),
        "service": service.spec.service,
        "pid": service.pid,
        "ready": service.is_ready,
        "restarts": service.restarts,
    }
