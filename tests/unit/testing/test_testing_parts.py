"""Parts of barnabas.testing that need no cluster."""

from __future__ import annotations

import datetime
import mmap
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from barnabas import testing
from barnabas.testing import process
from barnabas.testing.fault import Fault
from barnabas.testing.ports import KEPT_MAX, ReservedPorts, free_ports


def test_ports_are_in_a_row_free_and_claimed_by_one_alone() -> None:
    owners = [ReservedPorts(3) for _ in range(20)]
    try:
        ports = [owner.first + index for owner in owners for index in range(3)]
        assert len(set(ports)) == 60
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()
        if sys.platform == "linux":
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim,
                pytest.raises(OSError, match="in use"),
            ):
                claim.bind(f"\0barnabas-port-{ports[0]}")
    finally:
        for owner in owners:
            owner.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        claim.bind(f"\0barnabas-port-{ports[0]}")


def test_free_ports_are_nobody_elses_for_a_while() -> None:
    def claim(port: int) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.bind(f"\0barnabas-port-{port}")

    first = free_ports(2)
    for port in (first, first + 1):
        with pytest.raises(OSError, match="in use"):
            claim(port)
    for _ in range(KEPT_MAX):
        free_ports(1)
    claim(first)
    claim(first + 1)


COUNTING: Final = """
import mmap, os, sys, threading
file = os.open(sys.argv[1], os.O_RDWR)
counters = memoryview(mmap.mmap(file, 32)).cast("Q")
def count(place):
    while True:
        counters[place] += 1
for place in range(3):
    threading.Thread(target=count, args=(place,), daemon=True).start()
count(3)
"""


def test_a_process_that_is_paused_does_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    path.write_bytes(bytes(32))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 32) as shared, memoryview(shared) as counters:
        counting = subprocess.Popen([sys.executable, "-c", COUNTING, str(path)])
        try:
            while bytes(8) in [bytes(counters[at : at + 8]) for at in range(0, 32, 8)]:
                os.sched_yield()
            for _ in range(50):
                os.kill(counting.pid, signal.SIGSTOP)
                process.wait_until_stopped(counting.pid)
                stopped = bytes(counters)
                os.sched_yield()
                assert bytes(counters) == stopped
                assert set(process.thread_states(counting.pid)) == {"T"}
                os.kill(counting.pid, signal.SIGCONT)
                while bytes(counters) == stopped:
                    os.sched_yield()
        finally:
            counting.kill()
            counting.wait()
    process.wait_until_stopped(counting.pid)  # what is gone does nothing either


def test_a_record_in_other_forms() -> None:
    record = testing.Record("t", 0, 7, b"k", b'{"a": 1}', timestamp_ms=1_000)
    assert (record.text, record.json()) == ('{"a": 1}', {"a": 1})
    assert record.timestamp == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert testing.Record("t", 0, 8, None, None).text == ""


def test_a_fault_keeps_its_hits_after_its_end() -> None:
    hits = [1]
    with Fault("a fault", lambda: hits[0], lambda: hits[0]) as fault:
        assert fault.hits == 1
        fault.wait_for_hits(1)
        hits[0] = 2
        with pytest.raises(testing.TimedOut, match="a fault happened 2 times"):
            fault.wait_for_hits(3, timeout=0)
    hits[0] = 9
    fault.remove()
    assert fault.hits == 2


def test_the_package_names_what_it_has() -> None:
    assert [getattr(testing, name).__name__ for name in testing.__all__] == testing.__all__
    with pytest.raises(AttributeError, match="Klaster"):
        _ = testing.Klaster


def test_a_topic_is_its_name() -> None:
    cluster = testing.Cluster()
    try:
        topic = cluster.topic("orders")
        assert topic == "orders"
        assert topic.name == "orders"
        assert {"orders": 1}[topic] == 1
        with pytest.raises(testing.ClusterFailed, match="not running"):
            cluster.services()
    finally:
        cluster.close()
    assert not cluster.data_dir.exists()
