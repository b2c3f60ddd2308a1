"""Settings, refusals and the small decisions around a run; no cluster and no JVM."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.pipelines.__main__ import parse_arguments
from barnabas.pipelines.config import PipelineConfig, PipelineError, spark_jars
from barnabas.pipelines.produce_flights import Deliveries, encode
from barnabas.pipelines.topics import connect, free_name


def test_arguments_become_the_config() -> None:
    given = ["demo", "--bootstrap", "a:1,b:2", "--output", "out", "--topic", "t", "--partitions", "3"]
    config = parse_arguments(given, {"JAVA_HOME": "/java"})
    assert config == PipelineConfig(
        bootstrap="a:1,b:2", output=Path("out"), flights_topic="t", partitions=3, java_home="/java"
    )
    assert parse_arguments(["demo"], {}) == PipelineConfig()


@pytest.mark.parametrize("arguments", [["--bootstrap", ""], ["--partitions", "0"], ["--threads", "0"]])
def test_senseless_settings_are_refused(arguments: list[str]) -> None:
    with pytest.raises(PipelineError):
        parse_arguments(["demo", *arguments], {})


def test_missing_java_and_missing_jars_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    with pytest.raises(PipelineError, match="java is missing"):
        spark_jars(PipelineConfig(jars=tmp_path, java_home=str(tmp_path)))
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    config = PipelineConfig(jars=tmp_path, java_home=str(tmp_path))
    with pytest.raises(PipelineError, match=r"deploy/jars/fetch\.sh spark-kafka"):
        spark_jars(config)
    for name in ("spark-sql-kafka.jar", "kafka-clients.jar"):
        (tmp_path / name).touch()
    assert spark_jars(config) == [str(tmp_path / "kafka-clients.jar"), str(tmp_path / "spark-sql-kafka.jar")]


def test_a_name_is_free_only_with_all_its_suffixes() -> None:
    assert free_name("flights", set()) == "flights"
    assert free_name("flights", {"flights"}) == "flights-2"
    assert free_name("flights", {"flights", "flights-2-delays"}, ("", "-delays")) == "flights-3"
    everything = {"f"} | {f"f-{number}" for number in range(2, 1000)}
    with pytest.raises(PipelineError, match="pass another --topic"):
        free_name("f", everything)


def test_a_record_is_keyed_by_carrier_and_keeps_nulls() -> None:
    key, value = encode({"carrier": "UA", "dep_time": None, "flight": 1})
    assert key == "UA"
    assert json.loads(value) == {"carrier": "UA", "dep_time": None, "flight": 1}


def test_deliveries_count_and_keep_the_first_failure() -> None:
    deliveries = Deliveries()
    message = SimpleNamespace(topic=lambda: "flights", partition=lambda: 2)
    deliveries.on_delivery(None, message)  # type: ignore[arg-type]
    deliveries.check()
    for reason in ("timed out", "later"):
        error = SimpleNamespace(str=lambda reason=reason: reason)
        deliveries.on_delivery(error, message)  # type: ignore[arg-type]
    assert deliveries.acknowledged == 1
    with pytest.raises(PipelineError, match=r"flights \[2\]: timed out"):
        deliveries.check()


def test_no_cluster_is_one_clear_line() -> None:
    with socket.socket() as taken:  # bound, not listening: a connection to it is refused
        taken.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PipelineError, match=f"no Kafka cluster answers at {bootstrap}") as caught:
            connect(PipelineConfig(bootstrap=bootstrap, timeout_seconds=0.3))
    assert "\n" not in str(caught.value)


def test_the_command_fails_with_one_line_and_loads_nothing_heavy(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "barnabas.pipelines",
        "demo",
        "--jars",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert not any(heavy in done.stderr for heavy in ("| pyspark", "| pandas", "| matplotlib"))
