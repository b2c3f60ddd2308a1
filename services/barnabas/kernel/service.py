"""How every service process starts, says that it is ready, and stops.

`run_service` is all that a `__main__` calls. It loads the config, sets up logs, tracing and the event loop, opens
the HTTP endpoints, runs the service's own `serve` coroutine, and turns SIGTERM and SIGINT into an orderly stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from barnabas.kernel.allocator import collection_put_off
from barnabas.kernel.clock import Clock, SystemClock
from barnabas.kernel.config import ConfigError, check_address, load_config, unknown_variables
from barnabas.kernel.environment import Environment, no_network
from barnabas.kernel.files import SystemFiles
from barnabas.kernel.health import Health
from barnabas.kernel.logs import LEVELS, STYLES, configure_logs, get_logger
from barnabas.kernel.movable_clock import ClockRefused, MovableClock, load_clock
from barnabas.kernel.notify import notify_ready, notify_stopping
from barnabas.kernel.threads import SystemThreads

if TYPE_CHECKING:
    from barnabas.links.network import Network

EXIT_USER_ERROR: Final = 78
"""Exit status for what only the user can mend (EX_CONFIG of sysexits): a supervisor must not try again."""

STOP_SECONDS_MAX: Final = 30.0
"""How long a service may take from the signal to its end; whoever starts it gives it at least that long. What a service
waits for meanwhile has limits of its own, which fit into this; the last step has what is left of it (`Stopping`)."""

STOP_MARGIN_SECONDS: Final = 2.0
"""What of it is left to what has no limit: a busy machine, the interpreter's end."""

READY_POLL_SECONDS: Final = 0.005
LOOP_LAG_PROBE_SECONDS: Final = 0.5
HTTP_DELAY_SECONDS_MAX: Final = 2.0

log = get_logger("service")


class StartError(Exception):
    """The service cannot start until the user changes something; the message is one line that says what."""


class ServiceConfig(Protocol):
    """The settings that every service has."""

    @property
    def http_address(self) -> str: ...
    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...


GRPC_EXPERIMENTS: Final = "-event_engine_client,-event_engine_listener"
"""Its thread that waits for events reads the sockets itself, instead of being told by threads of an engine. A message
and its answer cost half the processor time so. It is how gRPC for Python worked before 1.80; once it is gone there,
the names are unknown, and ignored."""

Endpoint = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""An HTTP endpoint of a service's own: (method, body) to (status, text)."""


class Stopping(asyncio.Event):
    """Set when a service is to stop. Owner of when that was, by the event loop's time."""

    def __init__(self, whole: Stopping | None = None) -> None:
        """`whole` is that of the process, for one of several services in it: its time runs for all of them."""
        super().__init__()
        self._whole = whole
        self._since = 0.0

    def set(self) -> None:
        if not self.is_set():
            self._since = asyncio.get_running_loop().time()
        super().set()

    def seconds_left(self) -> float:
        """What is left for all further steps of the stop; it is set."""
        began = self if self._whole is None or not self._whole.is_set() else self._whole
        assert began.is_set(), "before the stop nothing runs out"
        passed = asyncio.get_running_loop().time() - began._since
        return max(0.0, STOP_SECONDS_MAX - STOP_MARGIN_SECONDS - passed)


@dataclass(frozen=True)
class ServiceContext:
    """What `serve` gets besides its config: its environment, the readiness conditions and the event that ends it."""

    name: str
    environment: Environment
    health: Health = field(default_factory=Health)
    stopping: Stopping = field(default_factory=Stopping)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    measurements: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """What is measured right before `/metrics` is answered; add to it before the service is ready."""
    parts: list[Environment] = field(default_factory=list)
    """The environments of all services in the process, for `/metrics`."""

    def __post_init__(self) -> None:
        self.parts.append(self.environment)

    def add_endpoint(self, path: str, answer: Endpoint) -> None:
        """Serve `path` beside the endpoints that every service has; call it before the service is ready."""
        assert path not in self.endpoints, f"{path} is served already"
        self.endpoints[path] = answer

    def part(self, network: Network | None = None) -> ServiceContext:
        """The context of one of several services in this process: its own environment and end, all else shared.

        It may have a network of its own, too.
        """
        environment = replace(self.environment, network=network or self.environment.network)
        return replace(self, environment=environment, stopping=Stopping(self.stopping))


ConfigT = TypeVar("ConfigT", bound=ServiceConfig)
Serve = Callable[[ConfigT, ServiceContext], Awaitable[None]]


def run_service(
    name: str,
    load: Callable[[], tuple[type[ConfigT], Serve[ConfigT], Network]],
    hosted: Collection[str] = (),
) -> None:
    """Run one service process to its end and exit with its status; `hosted` are the services within, if several.

    `load` imports the service and returns its config type, `serve`, and the network that it is to use.
    `serve(config, context)` must return soon after `context.stopping` is set, with everything closed.
    """
    prepare_imports()
    import uvloop

    try:
        with collection_put_off():
            config_type, serve, network = load()
            import_health()
        config = load_config(config_type, sys.argv[1:], program=f"python -m barnabas.{name}")
        _check_shared_settings(config)
        configure_logs(name, level=config.log_level, style=config.log_format, hosted=hosted)
        if unknown := unknown_variables(config_type):
            log.warning("these variables are no settings of this service", variables=", ".join(unknown))
        _raise_descriptor_limit()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(name, config, serve, network))
    except (ConfigError, StartError) as error:
        print(f"barnabas {name}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)


def prepare_imports() -> None:
    """What must be so before any service is imported; may be called again."""
    # kio registers strategies with Hypothesis when it is installed, at a cost of 0.2 s that only tests need.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    # gRPC's own lines repeat in other words what we say.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_EXPERIMENTS", GRPC_EXPERIMENTS)


def import_health() -> None:
    """What a service serves `/metrics` and `/healthz` with once it is ready. Imported then, it makes the event loop
    stand still, when clients wait for it, and leaders whose in-sync replica it is.
    """
    import barnabas.kernel.http
    import barnabas.kernel.metrics
    import barnabas.kernel.metrics_page  # noqa: F401


def system_environment(clock: Clock | None = None, network: Network | None = None) -> Environment:
    """The real world, as a service of its own process sees it; it reaches no other service without a `network`."""
    return Environment(
        clock=clock or SystemClock(),
        random=random.Random(),
        new_id=uuid.uuid4,
        threads=SystemThreads(),
        network=network or no_network(),
        files=SystemFiles(),
    )


def system_clock(config: ServiceConfig) -> Clock:
    """The machine's clock; one that can be moved where the config names a file for it (`movable.clock.file`).

    Raises StartError.
    """
    path = getattr(config, "movable_clock_file", "")  # the canary measures real time only
    if not path:
        return SystemClock()
    try:
        return load_clock(path)
    except (ClockRefused, OSError) as error:
        raise StartError(f"movable.clock.file={path} cannot be used: {error}") from error


def _serve_clock(context: ServiceContext) -> None:
    """Let a test move the clock through /clock, if it is one that can be moved."""
    clock = context.environment.clock
    if isinstance(clock, MovableClock):
        context.add_endpoint("/clock", clock.answer_http)


def _check_shared_settings(config: ServiceConfig) -> None:
    """Raise ConfigError for a wrong value among the settings that every service has."""
    if config.http_address:
        check_address("http.address", config.http_address)
    if config.log_level.upper() not in LEVELS:
        raise ConfigError(f"log.level={config.log_level}: expected one of {', '.join(LEVELS)}")
    if config.log_format not in STYLES:
        raise ConfigError(f"log.format={config.log_format}: expected one of {', '.join(STYLES)}")


def _raise_descriptor_limit() -> None:
    """Have as many open files and connections as the machine grants, as a JVM does: the soft limit is mostly 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run(name: str, config: ConfigT, serve: Serve[ConfigT], network: Network) -> None:
    from barnabas.kernel.tracing import configure_tracing

    context = ServiceContext(name, system_environment(system_clock(config), network))
    _serve_clock(context)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _begin_stopping, context)
    provider = configure_tracing(name)
    announced = asyncio.Event()
    try:
        async with contextlib.AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            background = [
                tasks.create_task(_announce_when_ready(context, announced), name="ready"),
                tasks.create_task(_serve_health(config, context, announced), name="health"),
            ]
            try:
                await serve(config, context)
            finally:
                _begin_stopping(context)
                for task in background if not announced.is_set() else background[:1]:
                    task.cancel()
    except BaseExceptionGroup as group:  # what `except*` raises comes out in a group, in Python 3.11.2
        refusals, others = group.split(StartError)
        if refusals is None or others is not None:
            raise
        raise _first(refusals) from None
    finally:
        if provider is not None:
            provider.shutdown()


def _first(error: BaseException) -> BaseException:
    """The first error of a group of whatever depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _begin_stopping(context: ServiceContext) -> None:
    if not context.stopping.is_set():
        notify_stopping()
    context.health.begin_stopping()
    context.stopping.set()


async def _announce_when_ready(context: ServiceContext, announced: asyncio.Event) -> None:
    while not context.health.is_ready():
        await asyncio.sleep(READY_POLL_SECONDS)
    # What start-up left behind lives as long as the process: keep the collector from walking it again.
    gc.collect()
    gc.freeze()
    notify_ready()
    announced.set()
    log.debug("ready")


async def _serve_health(config: ServiceConfig, context: ServiceContext, announced: asyncio.Event) -> None:
    # Whoever waits for readiness need not wait for this too. A service that does not become ready must still be able to
    # say why.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HTTP_DELAY_SECONDS_MAX):
            await announced.wait()
    from barnabas.kernel.http import health_application, serve_http
    from barnabas.kernel.metrics import ProcessMetrics
    from barnabas.kernel.metrics_page import render

    process = ProcessMetrics()
    application = health_application(
        context.health,
        lambda: render((process.registry, *(part.registry for part in context.parts))),
        endpoints=context.endpoints,
        measurements=context.measurements,
    )
    try:
        async with serve_http(application, config.http_address):
            await process.watch_event_loop(context.stopping, LOOP_LAG_PROBE_SECONDS)
    except OSError as error:
        raise StartError(f"cannot serve HTTP at {config.http_address}: {error.strerror}") from error
