"""`barnabas up`: a whole cluster on one machine, one process per service, in the foreground.

Everything that a user can get wrong is checked before anything starts or is written: flags, the lock on the data
directory, its nodes, the ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time

from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import WILDCARD_HOSTS, UpOptions, UpRefused, bracketed, describe_ports
from barnabas.cli.plan import plan_cluster
from barnabas.cli.ports import check_ports
from barnabas.cli.supervisor import Supervisor, Surroundings
from barnabas.kernel.clock import SystemClock
from barnabas.kernel.config import ConfigError


def run_up(options: UpOptions, *, started: float) -> int:
    """Run the cluster until it is told to stop; returns the exit status. Raises UpRefused.

    `started` is when the command began, by time.monotonic().
    """
    directory = DataDirectory(options.data_dir)
    # The lock comes first: once it is free, every process of an earlier cluster, and its ports, are gone.
    directory.open(options.nodes)
    try:
        check_ports(options)
        stages = plan_cluster(options, directory)
        surroundings = Surroundings(directory.sockets, SystemClock(), _say, directory.lock_descriptor)
        return asyncio.run(_run(options, Supervisor(stages, surroundings), started))
    except ConfigError as error:
        raise UpRefused(str(error)) from error
    finally:
        directory.close()


async def _run(options: UpOptions, supervisor: Supervisor, started: float) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.begin_stopping)
    http = asyncio.create_task(_serve_http(options, supervisor), name="http")

    def on_ready() -> None:
        elapsed = time.monotonic() - started
        print(ready_line(options, elapsed), flush=True)  # noqa: T201

    try:
        return await supervisor.run(on_ready)
    finally:
        http.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await http


async def _serve_http(options: UpOptions, supervisor: Supervisor) -> None:
    await asyncio.sleep(0)  # the services start first: they take longer than this import
    from barnabas.cli.endpoints import make_application
    from barnabas.kernel.http import serve_http

    address = f"{bracketed(options.host)}:{options.http_port}"
    try:
        async with serve_http(make_application(supervisor.services), address):
            await asyncio.Event().wait()
    except OSError as error:
        supervisor.begin_stopping()
        raise UpRefused(
            f"cannot serve HTTP at {address} ({error.strerror}): choose another --http-port"
        ) from error


def ready_line(options: UpOptions, elapsed_seconds: float) -> str:
    """What a user waits for: where clients connect, and where everything is."""
    host, ports = options.display_host, options.kafka_ports
    nodes = "1 node" if options.nodes == 1 else f"{options.nodes} nodes"
    http_host = host if options.host in WILDCARD_HOSTS else bracketed(options.host)
    return (
        f"barnabas is ready: bootstrap {host}:{options.port} ({nodes}, {describe_ports(ports)}), "
        f"http://{http_host}:{options.http_port}, data in {options.data_dir}, {elapsed_seconds:.1f} s"
    )


def _say(line: str) -> None:
    sys.stderr.write(f"barnabas: {line}\n")  # one write: the services write to the same stderr
    sys.stderr.flush()
