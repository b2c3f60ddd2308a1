"""How commands behave: on a terminal, in a pipe, when interrupted, and when something is wrong."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from command_line import CommandLine, executable

SECONDS_MAX: Final = 60.0


@pytest.fixture
def run(cluster: Any) -> CommandLine:
    return CommandLine(cluster.bootstrap)


@pytest.fixture
def topic(run: CommandLine) -> str:
    name = f"manners-{uuid.uuid4().hex[:12]}"
    run("topics", "create", name)
    return name


def on_terminal(run: CommandLine, *arguments: str, **environment: str) -> str:
    """What a command writes when all three of its streams are a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [str(executable()), *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**run.environment, **environment},
        start_new_session=True,
    )
    os.close(follower)
    output = b""
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            if select.select([leader], [], [], 0.2)[0]:
                try:
                    data = os.read(leader, 65_536)
                except OSError:  # the terminal's last user has gone
                    break
                if not data:
                    break
                output += data
        assert process.wait(SECONDS_MAX) == 0, output.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    return output.decode()


@contextmanager
def following(run: CommandLine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it is told to end, or until the test is over."""
    command = [str(executable()), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=run.environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_terminal_gets_tables_in_colour(run: CommandLine, topic: str) -> None:
    shown = on_terminal(run, "topics", "--describe", "--topic", topic)
    assert "╭" in shown
    assert "\x1b[36m" in shown, "topics are cyan"
    plain = on_terminal(run, "topics", "--describe", "--topic", topic, NO_COLOR="1")
    assert "╭" in plain
    assert "\x1b[36m" not in plain
    piped = run("topics", "--describe", "--topic", topic).text
    assert "╭" not in piped
    assert "\x1b" not in piped


def test_a_terminal_gets_a_progress_bar(run: CommandLine, topic: str) -> None:
    words = (
        "perf",
        "produce",
        "--topic",
        topic,
        "--num-records",
        "300",
        "--record-size",
        "9",
        "--throughput",
        "300",
    )
    assert "sending" in on_terminal(run, *words)
    assert "sending" not in run(*words).stderr


def test_following_until_interrupted(run: CommandLine, topic: str) -> None:
    with following(run, "consume", "-t", topic, "-o", "beginning") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        for word in ("first", "second"):
            run("produce", "-t", topic, stdin=f"{word}\n")
            assert follower.stdout.readline() == f"{word}\n".encode()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(SECONDS_MAX) == 130
        assert follower.stderr.read() == b""


def test_a_reader_that_leaves(run: CommandLine, topic: str) -> None:
    run("produce", "-t", topic, stdin="x" * 99 + "\n" + ("y" * 99 + "\n") * 20_000)
    done = subprocess.run(
        ["bash", "-c", f"barnabas consume -t {topic} -e | head -n 1; echo ${{PIPESTATUS[0]}}"],
        env=run.environment,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    assert done.stdout.splitlines() == [b"x" * 99, b"141"]
    assert done.stderr == b""


def test_refusals_are_one_line_with_a_way_out(run: CommandLine, topic: str, tmp_path: Path) -> None:
    assert run.refused("topics", "--list", "-b", "localhost:1") == (
        "cannot reach localhost:1 (connection refused): is it running? `barnabas up` starts one"
    )
    assert "no such option: --frob" in run.refused("topics", "--frob", status=2).lower()
    assert "one of --create" in run.refused("topics", status=2)
    assert "barnabas topics --list" in run.refused("consume", "-t", "no-such-topic")
    assert "message.max.bytes" in run.refused(
        "produce", "-t", topic, "-X", "message.max.bytes=1000", stdin="x" * 5000
    )
    assert "no such file" in run.refused("dump-log", str(tmp_path / "0.log"), status=2)
    assert "no partition 9" in run.refused(
        "delete-records", "--topic", topic, "--partition", "9", "--offset", "0"
    )
    assert "only a JVM can load" in run.refused("consume", "-t", topic, "--formatter", "a.B", status=2)
    assert "use --bootstrap-server" in run.refused(
        "cluster", "quorum", "--bootstrap-controller", "a:1", status=2
    )
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=geheim\nx.y=1\n"
    )
    result = run("topics", "--list", "--command-config", str(config), status=2)
    assert "x.y" in result.stderr
    assert "geheim" not in result.stderr


def test_a_disk_that_is_full(run: CommandLine, topic: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(executable()), "topics", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=run.environment,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "barnabas: cannot read or write (No space left on device): is the disk full, or the output closed?"
    ]


def test_a_member_without_partitions_stays(run: CommandLine, topic: str) -> None:
    words = ("consume", "-t", topic, "-G", f"group-{topic}", "-o", "beginning", "-q")
    with following(run, *words) as one, following(run, *words) as other:
        members = one, other
        deadline = time.monotonic() + SECONDS_MAX
        found: list[int] = []
        while sorted(found) != [0, 1] and time.monotonic() < deadline:
            described = ["groups", "--describe", "--group", f"group-{topic}", "--members", "--output", "json"]
            done = subprocess.run(
                [str(executable()), *described], capture_output=True, env=run.environment, check=False
            )
            found = [row["partitionCount"] for row in json.loads(done.stdout or b"[]")]
        assert sorted(found) == [0, 1], "one has the partition, the other waits"
        assert [member.poll() for member in members] == [None, None]
        said = []
        for member in members:
            member.send_signal(signal.SIGINT)
            said.append(member.communicate(timeout=SECONDS_MAX))
    assert [member.returncode for member in members] == [130, 130], said


def test_completion(run: CommandLine, topic: str) -> None:
    for shell, word in (
        ("bash", "complete -o"),
        ("zsh", "#compdef barnabas"),
        ("fish", "--command barnabas"),
    ):
        assert word in run("--show-completion", shell).text

    def complete(words: str, at: int) -> list[str]:
        asked = {"_BARNABAS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            [str(executable())],
            env={**run.environment, **asked},
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        return done.stdout.decode().split()

    assert complete("barnabas to", 1) == ["topics"]
    assert "--from-beginning" in complete("barnabas consume --from", 2)
    assert complete(f"barnabas consume --topic {topic[:-2]}", 3) == [topic]


def test_help_and_up_do_not_import_the_client(run: CommandLine) -> None:
    script = (
        "import sys; sys.argv = ['barnabas', '--help']\n"
        "from barnabas.cli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'confluent_kafka', 'kio', 'yaml', 'grpc'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [str(executable().parent / "python"), "-c", script],
        env=run.environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    for command in ("topics", "perf", "dump-log"):
        assert command in done.stdout.decode()


def test_what_is_not_there_is_named_with_a_way_out(run: CommandLine, topic: str) -> None:
    assert "no topic nosuchtopic: `barnabas topics --list`" in run.refused(
        "log-dirs", "--describe", "--topic-list", "nosuchtopic"
    )
    assert "no group nosuchgroup: `barnabas groups --list`" in run.refused(
        "groups", "--delete-offsets", "--group", "nosuchgroup", "--topic", topic
    )
    reset = ("groups", "--reset-offsets", "--group", "nosuchgroup", "--to-earliest")
    said = run.refused(*reset, "--topic", f"{topic}:99")
    assert f"topic {topic} has no partition 99: `barnabas topics --describe --topic {topic}`" in said
    assert "Broker ID 99 is not currently registered" in run.refused("cluster", "unregister", "--id", "99")
    run("groups", "list")  # makes the topic of groups
    kept = ("delete-records", "__consumer_offsets", "--partition", "0", "--offset", "0")
    assert "__consumer_offsets is the cluster's own" in run.refused(*kept)
