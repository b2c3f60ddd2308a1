"""Faults as the supervisor keeps them: told to gateways, found by those that start, counted; services held down."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from supervised_service import no_metrics, running_as

from barnabas.cli import unix_http
from barnabas.cli.clock_control import ClockControl
from barnabas.cli.endpoints import ClusterControls, make_application
from barnabas.cli.fault_control import FaultControl
from barnabas.cli.plan import faults_file
from barnabas.cli.supervisor import SupervisedService
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.faults.rule import FaultRefused
from barnabas.kernel.health import Health
from barnabas.kernel.http import health_application, serve_http

DROP = json.dumps({"apis": ["Produce"], "drop": True, "times": 2}).encode()


@pytest.fixture
async def gateway(folder: Path) -> AsyncIterator[SupervisedService]:
    """A process that runs under the name of a gateway."""
    async with running_as("gateway", folder) as service:
        yield service


async def test_a_rule_is_told_written_counted_and_removed(folder: Path, gateway: SupervisedService) -> None:
    told = Faults()
    application = health_application(Health(), no_metrics, endpoints={"/faults": told.answer_http})
    control = FaultControl(folder, [gateway])
    async with serve_http(application, f"unix:{folder}/gateway-1.http"):
        number = await control.add(DROP)
        assert told.is_active
        started = Faults()
        started.load(str(faults_file(folder)))
        assert started.is_active
        (listed,) = control.list_all()
        assert (listed["fault_id"], listed["hits"]) == (number, 0)
        Path(listed["tally"]).write_bytes(b"...")
        assert await control.remove(number) == 2
        assert await control.remove(number) is None
        assert not told.is_active
        assert not Path(listed["tally"]).exists()
        with pytest.raises(FaultRefused, match="no API"):
            await control.add(b'{"apis": ["x"], "drop": true}')
        assert control.list_all() == []
    started.replace([])


async def test_over_http(folder: Path, gateway: SupervisedService) -> None:
    await gateway.hold(signal.SIGKILL)
    address = f"{folder}/cluster.http"
    controls = ClusterControls(
        FaultControl(folder, [gateway]), ClockControl(folder / "clock.json", [gateway])
    )
    async with serve_http(make_application([gateway], controls), f"unix:{address}"):
        while not Path(address).exists():
            await asyncio.sleep(0)
        status, body = await unix_http.ask(address, "POST", "/faults", DROP)
        assert (status, json.loads(body)) == (201, {"fault_id": 1})
        assert len(json.loads((await unix_http.get(address, "/faults"))[1])) == 1
        assert await unix_http.ask(address, "DELETE", "/faults/1") == (200, b'{"hits":0}')
        assert (await unix_http.ask(address, "DELETE", "/faults/1"))[0] == 404
        status, body = await unix_http.ask(address, "POST", "/faults", b"{}")
        assert status == 400
        assert b"nothing would happen" in body
        assert (await unix_http.ask(address, "POST", "/services/storage-9/stop"))[0] == 404
        assert (await unix_http.ask(address, "POST", "/services/gateway-1/hug"))[0] == 404
        assert (await unix_http.ask(address, "POST", "/services/gateway-1/start"))[0] == 200
        while gateway.pid is None:
            await asyncio.sleep(0)
        assert (await unix_http.ask(address, "POST", "/services/gateway-1/stop"))[0] == 200
        assert gateway.pid is None


async def test_a_service_that_is_held_stays_down_until_it_is_released(gateway: SupervisedService) -> None:
    first = gateway.pid
    await gateway.hold(signal.SIGTERM)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (gateway.pid, gateway.restarts) == (None, 0)
    gateway.release()
    while gateway.pid is None:
        await asyncio.sleep(0)
    assert gateway.pid != first
