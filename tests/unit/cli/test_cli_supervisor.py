"""The supervisor with small real processes in place of services."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.backoff import BackoffLimits
from barnabas.cli.child import ServiceSpec
from barnabas.cli.supervisor import SupervisedService, Supervisor, Surroundings
from barnabas.kernel.clock import Clock, ManualClock, SystemClock

READY = """
import os, signal, socket, sys
def ready():
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
"""

SERVE = READY + "ready(); signal.pause()"
"""Ready at once, ends by SIGTERM's default action."""

STUBBORN = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN); ready()\nwhile True: signal.pause()"

SAY_STOP = READY + (
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); ready(); signal.sigwait([signal.SIGTERM])\n"
    "open(os.environ['TRACE'], 'a').write(os.environ['NAME'] + ' ')"
)
"""No handler: one that Python calls after `pause` has begun to wait would never be called."""

ONCE = READY + (
    "if os.path.exists(os.environ['MARK']): ready(); signal.pause()\n"
    "open(os.environ['MARK'], 'w').close(); sys.exit(3)"
)


def service(name: str, code: str, **environment: str) -> ServiceSpec:
    return ServiceSpec(name, name, (sys.executable, "-S", "-c", code), environment=environment)


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        yield Path(path)


class Harness:
    """A supervisor that runs on the test's event loop, and what it said."""

    def __init__(
        self,
        sockets: Path,
        *stages: list[ServiceSpec],
        stop_seconds_max: float = 30,
        clock: Clock | None = None,
    ) -> None:
        self.lines: list[str] = []
        surroundings = Surroundings(
            sockets,
            clock or SystemClock(),
            self.lines.append,
            backoff=BackoffLimits(first=0.01, longest=0.04),
            stop_seconds_max=stop_seconds_max,
        )
        self.supervisor = Supervisor(stages, surroundings)
        self.ready = asyncio.Event()
        self.running = asyncio.create_task(self.supervisor.run(self.ready.set))

    def __getitem__(self, name: str) -> SupervisedService:
        return next(service for service in self.supervisor.services if service.spec.name == name)

    async def stop(self) -> int:
        self.supervisor.begin_stopping()
        return await self.running


async def test_ready_is_announced_once_all_have_said_so(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", SERVE)], [service("b", SERVE)])
    await cluster.ready.wait()
    assert cluster["a"].is_ready
    assert cluster["b"].is_ready
    assert await cluster.stop() == 0
    assert cluster.lines == []
    assert cluster["a"].pid is None


async def test_a_killed_service_is_started_again_and_one_line_says_so(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", SERVE)])
    await cluster.ready.wait()
    first = cluster["a"].pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    while cluster["a"].pid in (None, first):
        await asyncio.sleep(0)
    await cluster["a"].wait_ready()
    assert cluster["a"].restarts == 1
    assert cluster.lines == ["a was killed by SIGKILL; starting it again in 0.01 s"]
    assert await cluster.stop() == 0


async def test_a_service_that_fails_at_first_becomes_ready_later(sockets: Path, tmp_path: Path) -> None:
    cluster = Harness(sockets, [service("a", ONCE, MARK=str(tmp_path / "mark"))])
    await cluster.ready.wait()
    assert cluster.lines == ["a exited with status 3; starting it again in 0.01 s"]
    assert await cluster.stop() == 0


async def test_pauses_double_up_to_the_limit(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", "import sys; sys.exit(0)")])
    while len(cluster.lines) < 4:
        await asyncio.sleep(0)
    assert [line.rsplit(" in ", 1)[1] for line in cluster.lines[:4]] == [
        "0.01 s",
        "0.02 s",
        "0.04 s",
        "0.04 s",
    ]
    assert await cluster.stop() == 0


async def test_a_service_that_somebody_restarts_in_order_is_there_again_at_once(
    sockets: Path, tmp_path: Path
) -> None:
    code = SAY_STOP.replace("signal.sigwait([signal.SIGTERM])", "True")
    cluster = Harness(sockets, [service("a", code, NAME="a", TRACE=str(tmp_path / "trace"))])
    while len(cluster.lines) < 4:
        await asyncio.sleep(0)
    assert set(cluster.lines) == {"a exited with status 0; starting it again in 0.01 s"}
    assert await cluster.stop() == 0


async def test_a_user_error_stops_everything_with_its_status(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", SERVE)], [service("b", "import sys; sys.exit(78)")])
    assert await cluster.running == 78
    assert cluster.lines == []
    assert not cluster.ready.is_set()
    assert cluster["a"].pid is None


async def test_stages_stop_in_order(sockets: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    names = ("first", "second", "third")
    cluster = Harness(sockets, *([service(name, SAY_STOP, NAME=name, TRACE=str(trace))] for name in names))
    await cluster.ready.wait()
    assert await cluster.stop() == 0
    assert trace.read_text().split() == list(names)


async def test_what_does_not_stop_is_killed_and_a_line_says_so(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", STUBBORN)], stop_seconds_max=0.05)
    await cluster.ready.wait()
    assert await cluster.stop() == 0
    assert cluster.lines == ["a did not stop within 0.05 s; killing it"]


async def test_a_second_request_to_stop_kills_at_once(sockets: Path) -> None:
    clock = ManualClock()
    cluster = Harness(sockets, [service("a", STUBBORN)], [service("b", STUBBORN)], clock=clock)
    await cluster.ready.wait()
    cluster.supervisor.begin_stopping()
    clock.advance(1_000)
    cluster.supervisor.begin_stopping()
    assert await cluster.running == 0
    assert cluster.lines == []


async def test_one_request_that_arrives_twice_stops_in_order(sockets: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    stages = [[service(name, SAY_STOP, NAME=name, TRACE=str(trace))] for name in ("first", "second")]
    cluster = Harness(sockets, *stages, clock=ManualClock())
    await cluster.ready.wait()
    cluster.supervisor.begin_stopping()
    cluster.supervisor.begin_stopping()
    assert await cluster.running == 0
    assert trace.read_text().split() == ["first", "second"]
    assert cluster.lines == []


async def test_stop_before_anything_is_ready(sockets: Path) -> None:
    cluster = Harness(sockets, [service("a", "import signal; signal.pause()")])
    assert await cluster.stop() == 0
    assert os.listdir(sockets) == []


SUPERVISE = """
import asyncio, sys, tempfile
from pathlib import Path
from barnabas.cli.child import ServiceSpec
from barnabas.cli.supervisor import Supervisor, Surroundings
from barnabas.kernel.clock import SystemClock

async def main():
    spec = ServiceSpec("a", "a", (sys.executable, "-S", "-c", sys.argv[2]))
    supervisor = Supervisor([[spec]], Surroundings(Path(sys.argv[1]), SystemClock(), print))
    await supervisor.run(lambda: print(supervisor.services[0].pid, flush=True))

asyncio.run(main())
"""


async def test_children_do_not_outlive_a_killed_supervisor(sockets: Path) -> None:
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUPERVISE, str(sockets), STUBBORN, stdout=asyncio.subprocess.PIPE
    )
    assert supervisor.stdout is not None
    child = os.pidfd_open(int(await supervisor.stdout.readline()))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(child, ended.set)
    supervisor.kill()
    await supervisor.wait()
    await ended.wait()
    asyncio.get_running_loop().remove_reader(child)
    os.close(child)
