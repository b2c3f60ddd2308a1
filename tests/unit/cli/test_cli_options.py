from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.options import Advertise, UpOptions, UpRefused
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
