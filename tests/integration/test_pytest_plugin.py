"""The pytest plugin as a project sees it that has Barnabas installed: each test is a pytest of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
pytest_plugins = "pytester"

WAIT_SECONDS = 90.0
HEAVY = ("confluent_kafka", "grpc", "http.client", "kio", "rich", "starlette", "typer", "uvicorn", "yaml")

ROUND_TRIP = """
    import pytest

    PORTS = set()

    def test_a_topic_of_its_own(barnabas_topic, barnabas_cluster):
        sent = barnabas_topic.produce(["one", ("key", b"two")], headers=[("h", "1")])
        assert [record.value for record in sent] == [b"one", b"two"]
        assert [record.offset for record in barnabas_topic.wait_for_records(2)] == [0, 1]
        assert barnabas_topic.records()[1].headers == (("h", b"1"),)
        assert barnabas_topic.name in barnabas_topic.cluster._kafka.admin.list_topics(timeout=10).topics

    @pytest.mark.barnabas_topic(partitions=3, config={"retention.ms": "60000"}, prefix="mine")
    def test_a_topic_as_marked(barnabas_topic, barnabas_cluster):
        assert barnabas_topic.startswith("mine-")
        topics = barnabas_cluster._kafka.admin.list_topics(timeout=10).topics
        assert len(topics[barnabas_topic].partitions) == 3
        assert not [name for name in topics if name.startswith("test-a-topic")], "deleted after its test"
"""


@pytest.fixture
def folder(
    pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The only place for temporary files of the inner pytest."""
    made = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(made))
    return made


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:randomly", *arguments, timeout=120
    )


def clusters_of(folder: Path) -> list[str]:
    """The command lines of processes whose data is below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{folder}/barnabas" in command:
                found.append(command)
    return found


def traces(folder: Path) -> list[str]:
    """What is left of clusters: files, sockets, processes."""
    return [entry.name for entry in folder.iterdir() if entry.name.startswith("barnabas")] + clusters_of(
        folder
    )


def test_a_topic_a_round_trip_and_no_trace(pytester: pytest.Pytester, folder: Path) -> None:
    pytester.makepyfile(ROUND_TRIP)
    result = run(pytester, "--strict-markers", "-W", "error", "-p", "no:asyncio")
    result.assert_outcomes(passed=2)
    assert traces(folder) == []


def test_one_cluster_a_worker_under_xdist(pytester: pytest.Pytester, folder: Path) -> None:
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_x(barnabas_cluster, barnabas_topic, number, worker_id):
            pathlib.Path(f"{worker_id}-{barnabas_cluster.port}").touch()
            barnabas_topic.produce([str(number)])
            assert [record.text for record in barnabas_topic.wait_for_records(1)] == [str(number)]
        """
    )
    result = run(pytester, "-n", "2")
    result.assert_outcomes(passed=6)
    clusters = [path.name for path in pytester.path.glob("gw*-*")]
    assert sorted(name.split("-")[0] for name in clusters) == ["gw0", "gw1"]
    assert len({name.split("-")[1] for name in clusters}) == 2
    assert traces(folder) == []


def test_nothing_outlives_a_killed_pytest(pytester: pytest.Pytester, folder: Path) -> None:
    pytester.makepyfile(
        """
        import pathlib, time

        def test_x(barnabas_cluster, barnabas_topic):
            barnabas_topic.produce(["x"])
            pathlib.Path("running").touch()
            time.sleep(600)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (pytester.path / "running").exists(), "the cluster did not start")
        assert len(clusters_of(folder)) == 3
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: traces(folder) == [], "left behind")


def wait_for(condition: object, message: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)


def test_harm_is_taken_back_and_a_failure_shows_the_log(pytester: pytest.Pytester, folder: Path) -> None:
    pytester.makepyfile(
        """
        import os, signal

        def test_harm(barnabas_cluster, barnabas_topic):
            barnabas_cluster.pause("controller")
            barnabas_cluster.stop_service("storage-1", kill=True)
            barnabas_cluster.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", client_id="barnabas-testing")

        def test_after_harm(barnabas_topic):
            barnabas_topic.produce(["x"])
            assert len(barnabas_topic.wait_for_records(1)) == 1

        def test_that_fails(barnabas_cluster):
            barnabas_cluster.kill_and_wait("gateway-1")
            assert False

        def test_that_times_out(barnabas_topic):
            barnabas_topic.produce(["there"])
            barnabas_topic.wait_for_records(2, timeout=0.5)
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*log of the cluster at 127.0.0.1:*", "*broker-1 was killed by SIGKILL*"])
    result.stdout.fnmatch_lines(["*TimedOut: 1 of 2 records came*", "*fits: 0:0 key=None value=b'there'*"])
    assert str(result.stdout).count("was killed by SIGKILL") == 1, "a log line of another test is shown"
    assert traces(folder) == []


def test_options_the_factory_and_data_that_is_kept(pytester: pytest.Pytester, folder: Path) -> None:
    pytester.makeini("[pytest]\nbarnabas_nodes = 3\n")
    pytester.makepyfile(
        """
        def test_shared(barnabas_cluster):
            assert len(barnabas_cluster.services()) == 3

        def test_own(barnabas_cluster_factory):
            cluster = barnabas_cluster_factory(nodes=2, gateways=2, advertise="one")
            assert len(cluster.services()) == 4
            assert cluster.metrics()
        """
    )
    result = run(pytester, "--barnabas-nodes=2", "--barnabas-keep-data")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*data and log are kept in *barnabas-test-*", "*data and log are kept in *"])
    assert clusters_of(folder) == []
    kept = sorted(folder.glob("barnabas-test-*/node-2"))
    assert len(kept) == 2
    assert [entry for entry in traces(folder) if not entry.startswith("barnabas-test-")] == []


def test_sessions_that_do_not_use_it_hardly_notice() -> None:
    script = "import sys, pytest; before = set(sys.modules); import barnabas.testing.plugin; "
    script += "print(*sorted(set(sys.modules) - before))"
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ}
    ).stdout
    loaded = output.split()
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert [name for name in loaded if not name.startswith("barnabas")] == []
