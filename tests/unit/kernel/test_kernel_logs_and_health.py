"""Structured logs, readiness and the HTTP endpoints."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas.kernel.health import Health
from barnabas.kernel.http import health_application, serve_http
from barnabas.kernel.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def logging_as_before() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("barnabas").setLevel(logging.NOTSET)


def test_json_lines_carry_the_bound_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("gateway", style="json")
    get_logger("gateway.connection").bind(connection=7).warning("connection closed", reason="bad frame")
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "connection closed"
    assert (line["service"], line["level"], line["connection"], line["reason"]) == (
        "gateway", "warning", 7, "bad frame",
    )  # fmt: skip


def test_text_lines_quote_what_has_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("storage", level="DEBUG")
    get_logger("storage").debug("rolled", topic="a b", offset=5, empty="")
    assert capsys.readouterr().err.rstrip().endswith('rolled topic="a b" offset=5 empty=""')


def test_a_level_that_is_off_costs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("storage", level="WARNING")
    get_logger("storage").info("quiet")
    assert capsys.readouterr().err == ""


def test_health_names_what_is_missing() -> None:
    health, state = Health(), {"log": False}
    assert health.unmet() == ["starting"]
    health.add_condition("log recovered", lambda: state["log"])
    assert health.unmet() == ["log recovered"]
    state["log"] = True
    assert health.is_ready()
    health.begin_stopping()
    assert health.unmet() == ["stopping"]


async def get(path: str, target: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


async def test_endpoints_over_a_unix_socket(tmp_path: Path) -> None:
    health = Health()
    health.add_condition("metadata received", lambda: False)
    path = str(tmp_path / "http.sock")

    async def metrics() -> bytes:
        return b"metric 1\n"

    async with serve_http(health_application(health, metrics), f"unix:{path}"):
        while not Path(path).exists():
            await asyncio.sleep(0)
        assert "503" in (ready := await get(path, "/readyz")).splitlines()[0]
        assert "not ready: metadata received" in ready
        page = await get(path, "/healthz")
        assert "200 OK" in page
        (date,) = re.findall("^date: (.*)\r$", page, re.MULTILINE)
        assert abs((parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()) < 60
        assert "metric 1" in await get(path, "/metrics")


async def test_endpoints_set_no_timer_while_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "http.sock")
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *arguments, **options)

    async def metrics() -> bytes:
        return b""

    monkeypatch.setattr(loop, "call_at", counted)
    async with serve_http(health_application(Health(), metrics), f"unix:{path}"):
        while not Path(path).exists():
            await asyncio.sleep(0)
        assert "200 OK" in await get(path, "/healthz")
        assert timers == []
