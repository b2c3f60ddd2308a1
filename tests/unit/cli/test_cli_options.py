from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.options import Advertise, UpOptions, UpRefused
from barnabas.cli.ports import check_ports
from barnabas.cli.up import ready_line
from barnabas.kernel.service import EXIT_USER_ERROR


def options(**changes: object) -> UpOptions:
    values: dict[str, object] = {"host": "127.0.0.1", "port": 9092, "data_dir": Path("data"), **changes}
    return UpOptions(**values)  # type: ignore[arg-type]


def test_the_ready_line_says_where_everything_is() -> None:
    line = ready_line(options(nodes=3), 0.87)
    assert line == (
        "barnabas is ready: bootstrap localhost:9092 (3 nodes, ports 9092-9094), http://127.0.0.1:8080, "
        "data in data, 0.9 s"
    )


def test_one_address_for_all_nodes() -> None:
    assert "(3 nodes, port 9092)" in ready_line(options(nodes=3, advertise=Advertise.one), 1)


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"port": 65_535, "nodes": 2}, "--port 65534 or lower"),
        ({"http_port": 9093, "nodes": 2}, "another --http-port"),
        ({"host": ""}, "--host is empty"),
        ({"data_dir": Path("a,b")}, "choose another path"),
        ({"overrides": ("num.partitions",)}, "expected name=value"),
        ({"overrides": ("=3",)}, "expected name=value"),
        ({"overrides": ("num.partition=3",)}, "did you mean num.partitions?"),
        ({"overrides": ("num.partitions=none",)}, "whole number"),
        ({"overrides": ("log.dirs=/x",)}, "follows from --data-dir"),
        ({"racks": ("a", ""), "nodes": 3}, "expected names with commas"),
        ({"racks": ("a", "b", "c"), "nodes": 2}, "add --nodes 3"),
        ({"racks": ("a",), "overrides": ("broker.rack=b",)}, "leave one of them out"),
    ],
)
def test_flags_that_do_not_fit_are_refused(changes: dict[str, object], advice: str) -> None:
    with pytest.raises(UpRefused, match=advice) as refusal:
        options(**changes).check()
    assert refusal.value.status == 2


def test_etcd_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_etcd = options(etcd="http://127.0.0.1:2379")
    with_etcd.check()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "aetcd" else found(name, *rest)
    )
    with pytest.raises(UpRefused, match=r"pip install 'barnabas\[etcd\]'") as refusal:
        with_etcd.check()
    assert refusal.value.status == EXIT_USER_ERROR
    options().check()


def reserved(port: int = 0) -> socket.socket:
    """A socket that keeps `port` (0: any) for this test: bound but not listening, so that it still counts as free.

    Both it and the check set SO_REUSEADDR, which lets two sockets share a port while neither of them listens; the
    kernel gives such a port to no other process that asks for any. Raises OSError when the port is in use.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def free_port_before_a_taken_one() -> tuple[socket.socket, socket.socket]:
    """Two sockets at successive ports, the first reserved, the second listening.

    The port before one that the kernel chose may be another process's: such a pair is given back and another taken.
    """
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            return reserved(taken.getsockname()[1] - 1), taken
        except OSError:
            taken.close()


@pytest.mark.parametrize("offset", [0, 1])
def test_a_taken_port_is_named_with_its_flag(offset: int) -> None:
    free, taken = free_port_before_a_taken_one()
    with free, taken:
        port = taken.getsockname()[1]
        with pytest.raises(UpRefused, match=f"port {port} on 127.0.0.1 is taken.*--port"):
            check_ports(options(port=port - offset, nodes=2))


def test_a_taken_http_port_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, reserved() as free:
        port = taken.getsockname()[1]
        with pytest.raises(UpRefused, match=f"port {port} .*--http-port"):
            check_ports(options(port=free.getsockname()[1], http_port=port))


def test_a_refusal_has_the_status_of_a_service_that_refuses() -> None:
    assert UpRefused("no").status == EXIT_USER_ERROR


def test_a_listener_that_shares_its_port_still_holds_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken,
        pytest.raises(UpRefused, match="is taken"),
    ):
        check_ports(options(port=taken.getsockname()[1]))


def test_a_host_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(UpRefused, match=r"--host 203.0.113.7 is no address of this machine"):
        check_ports(options(host="203.0.113.7"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["up", "--nodes", "0"], "--nodes"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--port", "x"], "--port"),
        (["up", "--advertise", "sni"], "--advertise"),
        (["up", "--nope"], "--nope"),
        (["dwon"], "dwon"),
    ],
)
def test_a_wrong_flag_is_one_line_and_a_failure(arguments: list[str], expected: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("barnabas: ")
    assert expected in done.stderr
    assert list(tmp_path.iterdir()) == []
