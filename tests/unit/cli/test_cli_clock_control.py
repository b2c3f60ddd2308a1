"""A cluster's time as the supervisor keeps it: told to services, found by those that start, kept over a restart."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervised_service import no_metrics, running_as

from barnabas.cli import telling, unix_http
from barnabas.cli.clock_control import ClockControl
from barnabas.cli.endpoints import ClusterControls, make_application
from barnabas.cli.fault_control import FaultControl
from barnabas.cli.supervisor import SupervisedService
from barnabas.kernel.health import Health
from barnabas.kernel.http import health_application, serve_http
from barnabas.kernel.movable_clock import ClockRefused, MovableClock, load_clock


def moving(seconds: object) -> bytes:
    return json.dumps({"seconds": seconds}).encode()


@pytest.fixture
async def service(folder: Path) -> AsyncIterator[SupervisedService]:
    """A process that runs under the name of a storage node."""
    async with running_as("storage", folder) as service:
        yield service


async def test_time_is_told_written_and_adds_up(folder: Path, service: SupervisedService) -> None:
    clock, path = MovableClock(), folder / "clock.json"
    application = health_application(Health(), no_metrics, endpoints={"/clock": clock.answer_http})
    control = ClockControl(path, [service])
    async with serve_http(application, f"unix:{folder}/storage-1.http"):
        assert await control.advance(moving(3600)) == 3_600_000
        assert await control.advance(moving(0.5)) == 3_600_500
        assert clock.advanced_ms == 3_600_500
        for wrong in (b"", b"[]", moving(-1), moving("1"), moving(None), moving(1e12)):
            with pytest.raises(ClockRefused, match="forward only"):
                await control.advance(wrong)
        with pytest.raises(ClockRefused, match="a hundred years"):
            await control.advance(moving(100 * 366 * 86_400))
    assert load_clock(str(path)).advanced_ms == 3_600_500
    again = ClockControl(path, [])
    assert again.advanced_ms == 3_600_500, "the cluster was stopped and started"
    await again.forget()
    assert load_clock(str(path)).advanced_ms == 0


async def test_one_that_does_not_answer_hears_of_it_with_the_next(
    folder: Path, service: SupervisedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "TELL_SECONDS_MAX", 0.02)
    control, clock = ClockControl(folder / "clock.json", [service]), MovableClock()
    with pytest.raises(ClockRefused, match="storage-1 does not answer: is it paused"):
        await control.advance(moving(60))
    monkeypatch.undo()
    application = health_application(Health(), no_metrics, endpoints={"/clock": clock.answer_http})
    async with serve_http(application, f"unix:{folder}/storage-1.http"):
        assert await control.advance(moving(0)) == 60_000
    assert clock.advanced_ms == 60_000
    await service.hold(signal.SIGKILL)
    assert await control.advance(moving(1)) == 61_000, "one that is down finds it in the file"


async def test_over_http(folder: Path, service: SupervisedService) -> None:
    await service.hold(signal.SIGKILL)
    address = f"{folder}/cluster.http"
    controls = ClusterControls(FaultControl(folder, []), ClockControl(folder / "clock.json", [service]))
    async with serve_http(make_application([service], controls), f"unix:{address}"):
        while not Path(address).exists():
            await asyncio.sleep(0)
        assert await unix_http.ask(address, "POST", "/clock", moving(2)) == (200, b'{"advanced_ms":2000}')
        status, text = await unix_http.ask(address, "POST", "/clock", moving(-2))
        assert (status, text.count(b"\n")) == (400, 1)
        assert await unix_http.ask(address, "DELETE", "/clock") == (200, b"ok\n")
    assert not (folder / "clock.json").exists()
