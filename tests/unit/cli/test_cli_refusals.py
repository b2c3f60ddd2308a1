"""What a command that cannot be right says: one line that names the flag and a way out."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from barnabas.cli.__main__ import main
from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import UpOptions, UpRefused
from barnabas.cli.ports import any_answers
from barnabas.cli.up import run_up


def said_by(arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["barnabas", *arguments.split(" ")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    said = capsys.readouterr().err
    assert said.startswith("barnabas: ")
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("groups --list --state bogus", "--state bogus: one of Unknown, PreparingRebalance, "),
        ("groups --list --state=bogus", "--state bogus: one of Unknown, PreparingRebalance, "),
        ("groups list --type bogus", "--type bogus: one of unknown, consumer, classic"),
        ("groups --export --list", "--export belongs to groups --reset-offsets, not to --list"),
        ("topics --list -X foo", "-X/--command-property 'foo' has no value"),
        ("perf produce t --record-size 1 --producer-props foo", "--producer-props 'foo' has no value"),
        ("perf consume t --consumer-props foo", "--consumer-props 'foo' has no value"),
        ("dump-log --files", "`barnabas dump-log --help` shows what there is"),
        ("up --port abc", "'abc' is not a whole number: `barnabas up --help`"),
        ("perf produce t --record-size x", "'x' is not a whole number"),
        ("perf produce t --throughput x", "'x' is not a number"),
        ("configs --alter --topic t --add-config cleanup.policy=[compact", "open bracket in '[compact'"),
        ("transactions describe", "needs a transactional id: `barnabas transactions list` shows them"),
        ("transactions describe a --transactional-id b", "has one id, and here are two, b and a"),
        ("transactions describe-producers t", "needs a topic and --partition"),
        (
            "transactions list --state open",
            "--state does not know 'open': it has Empty, Ongoing, PrepareCommit",
        ),
        ("transactions find-hanging --partition 0", "--partition belongs to a topic: give --topic too"),
        ("transactions abort t --partition 0", "give --start-offset, or --producer-id, --producer-epoch and"),
        (
            "transactions abort t --partition 0 --start-offset 1 --producer-id 1",
            "give --start-offset, or --producer-id, --producer-epoch and",
        ),
        (
            "transactions abort t --partition 0 --producer-id 1 --producer-epoch 0",
            "--producer-id, --producer-epoch and --coordinator-epoch belong together",
        ),
        ("produce bad!", "--topic is no valid name: 'bad!' has characters other than"),
    ],
)
def test_it_names_the_flag(
    arguments: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in said_by(arguments, monkeypatch, capsys)


def test_an_empty_address_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", f"127.0.0.1:{port}")
    assert f"cannot reach 127.0.0.1:{port}" in said_by("topics --list -b ", monkeypatch, capsys)


@pytest.mark.parametrize(
    "arguments",
    [
        "topics --list",
        "cluster unregister --id 1",
        "cluster quorum describe --status",
        "configs --describe --client c",
    ],
)
def test_nobody_listens(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "cannot reach localhost:1 (connection refused): is it running? `barnabas up` starts one"
    assert expected in said_by(f"{arguments} -b localhost:1", monkeypatch, capsys)


def test_a_taken_port_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = UpOptions(host="127.0.0.1", port=taken.getsockname()[1], data_dir=tmp_path / "data")
        with pytest.raises(UpRefused, match="is taken"):
            run_up(options, started=0.0)
        assert list(tmp_path.iterdir()) == []
        earlier = DataDirectory(tmp_path / "data")
        earlier.open(1)
        earlier.close()
        with pytest.raises(UpRefused, match="is taken"):
            run_up(options, started=0.0)


def test_whether_anybody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        assert any_answers([f"127.0.0.1:{port}"])
    assert not any_answers([f"127.0.0.1:{port}"])
    assert not any_answers([f"127.0.0.1:{port}", f"[::1]:{port}"])
    assert any_answers(["unix:/path"])
