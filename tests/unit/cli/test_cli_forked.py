"""Processes that were forked, not started: their exit status, signals, and what they inherit."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.backoff import BackoffLimits
from barnabas.cli.child import ServiceSpec, bind_readiness_socket
from barnabas.cli.forked import ForkedProcess
from barnabas.cli.supervisor import Supervisor, Surroundings
from barnabas.kernel.clock import SystemClock
from barnabas.testing.ports import free_ports


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        yield Path(path)


def forked(sockets: Path, name: str, act: Callable[[], None]) -> ForkedProcess:
    """A child that says it is ready, does `act` and exits with status 7."""
    path = str(sockets / f"{name}.notify")
    readiness = bind_readiness_socket(path)
    pid = os.fork()
    if pid == 0:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto(b"READY=1", path)
            act()
        finally:
            os._exit(7)
    return ForkedProcess(pid, readiness)


async def test_status_of_one_that_ends_by_itself_for_all_who_wait(sockets: Path) -> None:
    process = forked(sockets, "a", lambda: None)
    with process.readiness:
        assert await asyncio.gather(process.wait(), process.wait()) == [7, 7]
        assert await process.wait() == 7
        with pytest.raises(ProcessLookupError):
            process.terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_status_of_one_that_a_signal_ended(sockets: Path, number: signal.Signals) -> None:
    process = forked(sockets, "a", signal.pause)
    with process.readiness:
        process.send_signal(number)
        assert await process.wait() == -number


async def test_a_forked_service_that_ends_is_started_again_by_its_command(sockets: Path) -> None:
    code = (
        "import os, signal, socket;"
        "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET']);"
        "signal.pause()"
    )
    spec = ServiceSpec("a", "storage", (sys.executable, "-S", "-c", code))
    lines: list[str] = []
    surroundings = Surroundings(
        sockets, SystemClock(), lines.append, backoff=BackoffLimits(first=0.01, longest=0.04)
    )
    first = forked(sockets, "a", signal.pause)  # it is ready before anybody listens
    supervisor = Supervisor([[spec]], surroundings, {"a": first})
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    await ready.wait()
    (service,) = supervisor.services
    assert service.pid == first.pid
    os.kill(first.pid, signal.SIGKILL)
    while service.pid in (None, first.pid):
        await asyncio.sleep(0)
    await service.wait_ready()
    assert lines == ["a was killed by SIGKILL; starting it again in 0.01 s"]
    supervisor.begin_stopping()
    assert await running == 0


FORK_ONE = """
import os, signal, sys, types
from pathlib import Path
from barnabas.cli.child import ServiceSpec
from barnabas.cli import forked
from barnabas.cli.kept_ports import KeptPorts

def serve(service, load, hosted):
    with open(sys.argv[-1], "w") as report:
        opened = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                  if os.path.exists(f"/proc/self/fd/{name}")}
        opened.pop(report.fileno())
        print(sorted(opened), opened[0], os.getsid(0) == os.getpid(), Path("/proc/self/comm").read_text().strip(),
              service, sys.argv[:-1], os.environ["NOTIFY_SOCKET"], os.environ["BARNABAS_KEPT_SOCKETS"],
              os.path.samestat(os.fstat(1), os.fstat(2)), file=report)
    raise SystemExit(78)

forked.run_service = serve
folder, report = Path(sys.argv[1]), sys.argv[2]
secret, lock = os.open(folder, os.O_RDONLY), os.open(folder, os.O_RDONLY)
secrets = os.dup(secret), os.dup(secret)
kept = KeptPorts("127.0.0.1", [int(sys.argv[3])])
spec = ServiceSpec("storage-1", "storage", (), arguments=("--config", report), kept=kept)
process = forked.fork_services([spec], folder, lock)["storage-1"]
_, status = os.waitpid(process.pid, 0)
print(os.waitstatus_to_exitcode(status), lock, *kept.descriptors)
"""


def test_what_a_forked_service_has_of_its_supervisor(sockets: Path) -> None:
    report, port = sockets / "report", free_ports(1)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_ONE, str(sockets), str(report), str(port)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    status, lock, kept = run.stdout.split()
    assert status == "78"
    assert report.read_text() == (
        f"[0, 1, 2, {lock}, {kept}] /dev/null True storage-1 storage ['storage-1', '--config'] "
        f"{sockets}/storage-1.notify 127.0.0.1|{port}={kept} True\n"
    )


FORK_AND_LIST = """
import os, sys
from pathlib import Path
from barnabas.cli.child import ServiceSpec
from barnabas.cli import forked

KINDS = ("barnabas.controller.service", "barnabas.coordinator.service", "uvicorn")

def serve(service, load, hosted):
    load()
    with open(sys.argv[-1], "a") as report:
        print(sys.argv[0], *(name for name in KINDS if name in sys.modules), file=report)
    raise SystemExit

forked.run_service = serve
folder, report = Path(sys.argv[1]), sys.argv[2]
specs = []
for names in sys.argv[3:]:
    name, *aliases = names.split(",")
    specs.append(ServiceSpec(name, name.partition("-")[0], (), arguments=("--config", report), aliases=aliases))
for process in forked.fork_services(specs, folder, -1).values():
    os.waitpid(process.pid, 0)
print(*(name for name in KINDS if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("names", "imported", "reported"),
    [
        (
            ("coordinator-1", "coordinator-2", "controller"),
            ["barnabas.coordinator.service", "uvicorn"],
            [
                "controller barnabas.controller.service uvicorn",
                "coordinator-1 barnabas.coordinator.service uvicorn",
                "coordinator-2 barnabas.coordinator.service uvicorn",
            ],
        ),
        (
            ("broker-1,coordinator-1", "broker-2,coordinator-2"),
            ["barnabas.coordinator.service", "uvicorn"],
            [
                "broker-1 barnabas.coordinator.service uvicorn",
                "broker-2 barnabas.coordinator.service uvicorn",
            ],
        ),
    ],
    ids=["by themselves", "in brokers"],
)
def test_what_several_services_need_is_imported_once_and_nothing_that_one_alone_needs(
    sockets: Path, names: tuple[str, ...], imported: list[str], reported: list[str]
) -> None:
    report = sockets / "report"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_AND_LIST, str(sockets), str(report), *names],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.split() == imported
    assert sorted(report.read_text().splitlines()) == reported
