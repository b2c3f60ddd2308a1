"""The demo as a person runs it, against a cluster, held value by value to the same computation in DuckDB.

The demo runs in a process of its own: that is what a person runs, and PySpark's sockets and warnings stay out
of the tests' process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from datetime import UTC
from pathlib import Path
from typing import Protocol

import duckdb
import pytest

from barnabas.pipelines.config import PipelineConfig
from barnabas.pipelines.dataset import FLIGHTS_TOTAL, table_path
from barnabas.pipelines.results import Delay, Delays, difference, read_result_topic
from barnabas.pipelines.topics import read_to_end

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "build" / "jars" / "spark-kafka"

pytestmark = pytest.mark.integration


class Cluster(Protocol):
    """What these tests need of the `cluster` fixture."""

    @property
    def bootstrap(self) -> str: ...


# By the table's own local date, not by event-time windows: a different road to the same numbers.
REFERENCE = """
    select make_timestamp(year, month, day, 5, 0, 0) as window_start,
           make_timestamp(year, month, day, 5, 0, 0) + interval 1 day as window_end,
           f.carrier, l.name as carrier_name, f.origin, a.name as origin_name,
           count(*) as flights,
           count(*) filter (where dep_time is null) as flights_cancelled,
           count(arr_delay) as flights_arrived,
           avg(dep_delay) as departure_delay_minutes_mean,
           max(dep_delay) as departure_delay_minutes_max,
           avg(arr_delay) as arrival_delay_minutes_mean,
           max(arr_delay) as arrival_delay_minutes_max
    from read_csv($flights, nullstr = ['NA', '']) f
    left join read_csv($airlines) l on l.carrier = f.carrier
    left join read_csv($airports) a on a.faa = f.origin
    group by all
"""


def delays_of(connection: duckdb.DuckDBPyConnection) -> Delays:
    """The rows of the connection's last query as results; its timestamps are UTC."""
    names = [column[0] for column in connection.description or ()]
    results = []
    for row in connection.fetchall():
        fields = dict(zip(names, row, strict=True))
        for name in ("window_start", "window_end"):
            fields[name] = fields[name].replace(tzinfo=UTC)
        results.append(Delay(**fields))
    by_key = {result.key: result for result in results}
    assert len(by_key) == len(results)
    return by_key


def reference(folder: Path) -> Delays:
    with zipfile.ZipFile(table_path("flights.csv.zip")) as archive:
        archive.extract("flights.csv", folder)
    tables = {
        "flights": str(folder / "flights.csv"),
        "airlines": table_path("airlines.csv"),
        "airports": table_path("airports.csv"),
    }
    with duckdb.connect() as connection:
        return delays_of(connection.execute(REFERENCE, tables))


def parquet(folder: Path) -> Delays:
    # Read with DuckDB, not with the demo's own reader; the cast drops the zone after moving to UTC.
    query = "select * replace (window_start::timestamp as window_start, window_end::timestamp as window_end)"
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        return delays_of(
            connection.execute(f"{query} from read_parquet($files)", {"files": f"{folder}/*.parquet"})
        )


def run_demo(bootstrap: str, output: Path, topic: str) -> str:
    """The demo's terminal output; fails with all of it if the demo did."""
    subprocess.run([ROOT / "deploy/jars/fetch.sh", "spark-kafka", JARS], check=True, timeout=200)
    command = [sys.executable, "-m", "barnabas.pipelines", "demo", "--bootstrap", bootstrap]
    command += ["--output", str(output), "--jars", str(JARS), "--topic", topic]
    environment = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(300)
def test_demo_gives_what_duckdb_gives(cluster: Cluster, tmp_path: Path) -> None:
    topic = f"demo-flights-{os.getpid()}"
    printed = run_demo(cluster.bootstrap, tmp_path, topic)
    assert f"{FLIGHTS_TOTAL:,} flights acknowledged" in printed
    assert f"Spark read {FLIGHTS_TOTAL:,} flights" in printed
    assert "United Air Lines Inc." in printed
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    config = PipelineConfig(bootstrap=cluster.bootstrap)
    expected = reference(tmp_path)
    assert sum(delay.flights for delay in expected.values()) == FLIGHTS_TOTAL
    for found in (read_result_topic(config, f"{topic}-delays"), parquet(tmp_path / "delays.parquet")):
        assert sum(delay.flights for delay in found.values()) == FLIGHTS_TOTAL
        assert difference(found, expected) is None

    # Each window was handed out once and whole: no key was written twice.
    keys = [key for key, _ in read_to_end(config, f"{topic}-delays")]
    assert len(keys) == len(set(keys)) == len(expected)
