"""`barnabas up`: a whole cluster on one machine, in the foreground: a process for each node, and others beside.

Everything that a user can get wrong is checked before anything starts or is written: flags, the lock on the data
directory, its nodes, the ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from barnabas.cli.child import ServiceSpec
from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.forked import fork_services
from barnabas.cli.kept_ports import KeptPorts
from barnabas.cli.options import WILDCARD_HOSTS, UpOptions, UpRefused, bracketed, describe_ports
from barnabas.cli.plan import clock_file, plan_cluster
from barnabas.cli.ports import any_answers, take_ports
from barnabas.cli.supervisor import Supervisor, Surroundings
from barnabas.kernel.clock import SystemClock
from barnabas.kernel.config import ConfigError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDIN_DESCRIPTOR: Final = 0
STDIN_BYTES_MAX: Final = 4096

HTTP_DELAY_SECONDS_MAX: Final = 2.0
"""A cluster that does not become ready must still be able to say why."""


def run_up(options: UpOptions, *, started: float) -> int:
    """Run the cluster until it is told to stop; returns the exit status. Raises UpRefused.

    `started` is when the command began, by time.monotonic().
    """
    directory = DataDirectory(options.data_dir)
    resources = contextlib.ExitStack()
    try:
        if directory.is_new:
            take_ports(options, resources)  # before anything is written: nothing is left behind then
            directory.open(options.nodes)
        else:
            # The lock comes first: once it is free, every process of an earlier cluster, and its ports, are gone.
            directory.open(options.nodes)
            take_ports(options, resources)
        if options.etcd and not any_answers(options.etcd_endpoints):
            _say(
                f"waiting for etcd: nobody listens at {', '.join(options.etcd_endpoints)}. Start it, or stop this "
                "and give the right --etcd"
            )
        stages = _with_kept_ports(plan_cluster(options, directory), options.host, resources)
        surroundings = Surroundings(directory.sockets, SystemClock(), _say, directory.lock_descriptor)
        specs = [spec for stage in stages for spec in stage]
        # What wants to stop us while we have no event loop yet waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        forked = fork_services(specs, directory.sockets, directory.lock_descriptor)
        supervisor = Supervisor(stages, surroundings, forked)
        status = asyncio.run(_run(options, supervisor, directory, started))
        if supervisor.ended_now:
            shutil.rmtree(options.data_dir, ignore_errors=True)
        return status
    except ConfigError as error:
        raise UpRefused(str(error)) from error
    finally:
        resources.close()
        directory.close()


def _with_kept_ports(
    stages: Sequence[Sequence[ServiceSpec]], host: str, resources: contextlib.ExitStack
) -> list[list[ServiceSpec]]:
    """The services, with the ports that they alone serve bound for as long as `resources` are there.

    Where several have such ports, each is there for those of the others while their process is away.
    """

    def keep(spec: ServiceSpec) -> ServiceSpec:
        kept = resources.enter_context(contextlib.closing(KeptPorts(host, spec.ports)))
        return replace(spec, kept=kept)

    try:
        keeping = [[keep(spec) if spec.ports else spec for spec in stage] for stage in stages]
    except OSError as error:
        raise UpRefused(f"a port on {host} was taken just now ({error.strerror}): try again") from error
    all_kept = [spec.kept for stage in keeping for spec in stage if spec.kept is not None]
    for kept in all_kept:
        kept.share_with([other for other in all_kept if other is not kept])
    return keeping


async def _run(options: UpOptions, supervisor: Supervisor, directory: DataDirectory, started: float) -> int:
    loop = asyncio.get_running_loop()
    if options.ephemeral:
        _watch_stdin(supervisor)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, supervisor.begin_stopping)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    announced = asyncio.Event()
    http = asyncio.create_task(_serve_http(options, supervisor, directory, announced), name="http")

    def on_ready() -> None:
        elapsed = time.monotonic() - started
        print(ready_line(options, elapsed), flush=True)  # noqa: T201
        announced.set()

    try:
        return await supervisor.run(on_ready)
    finally:
        http.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await http


async def _serve_http(
    options: UpOptions, supervisor: Supervisor, directory: DataDirectory, announced: asyncio.Event
) -> None:
    await asyncio.sleep(0)  # the services start first: they take longer than this import
    if options.ephemeral:  # a test waits for the services alone: leave them both cores
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HTTP_DELAY_SECONDS_MAX):
                await announced.wait()
    from barnabas.cli.endpoints import make_application
    from barnabas.kernel.http import serve_http

    controls = None
    if options.fault_injection:
        from barnabas.cli.clock_control import ClockControl
        from barnabas.cli.endpoints import ClusterControls
        from barnabas.cli.fault_control import FaultControl

        controls = ClusterControls(
            FaultControl(directory.sockets, supervisor.services),
            ClockControl(clock_file(directory), supervisor.services),
        )
    address = f"{bracketed(options.host)}:{options.http_port}"
    try:
        async with serve_http(make_application(supervisor.services, controls), address):
            await asyncio.Event().wait()
    except OSError as error:
        supervisor.begin_stopping()
        raise UpRefused(
            f"cannot serve HTTP at {address} ({error.strerror}): choose another --http-port"
        ) from error


def _watch_stdin(supervisor: Supervisor) -> None:
    """End everything as soon as whoever started us writes to our stdin or lets go of it, by will or by dying.

    A word, because a child that our parent forked may hold the pipe open; its end, because the dead say nothing.
    """
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        os.read(STDIN_DESCRIPTOR, STDIN_BYTES_MAX)
        loop.remove_reader(STDIN_DESCRIPTOR)
        supervisor.end_now()

    loop.add_reader(STDIN_DESCRIPTOR, on_readable)


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
