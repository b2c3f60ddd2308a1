from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.commands import cluster_metadata, group_tables, log_dirs, topic_tables
from barnabas.cli.text.output import Column, OutputFormat, plain_table, plain_text, show_rows
from barnabas.cli.text.statistics import Window, final_line, percentile
from barnabas.kernel.errors import ErrorCode

ROWS = [{"name": "a", "count": 5, "more": {"x": 1}}, {"name": "long name", "count": None, "more": {}}]
COLUMNS = (Column("name", "NAME", "cyan"), Column("count", "COUNT", is_number=True))


def test_columns_are_aligned_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, OutputFormat.table)
    assert capsys.readouterr().out == "NAME       COUNT\na              5\nlong name      -\n"
    show_rows(ROWS, COLUMNS, OutputFormat.table, plain_line=lambda row: f"{row['name']}!")
    assert capsys.readouterr().out == "a!\nlong name!\n"
    assert plain_table([], COLUMNS) == []


def test_json_and_yaml_have_everything(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, OutputFormat.json)
    assert json.loads(capsys.readouterr().out) == ROWS
    show_rows(ROWS, COLUMNS, OutputFormat.yaml)
    assert yaml.safe_load(capsys.readouterr().out) == ROWS


def test_values_in_cells() -> None:
    values: list[Any] = [None, "", True, False, [1, 2], [], {"a": 1}, {}, 0]
    assert [plain_text(value) for value in values] == ["-", "-", "yes", "no", "1,2", "-", "a=1", "-", "0"]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_percentiles_are_values(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-6


def test_kafkas_line() -> None:
    window = Window(10.0)
    for latency in range(1, 101):
        window.add(1024 * 1024, float(latency))
    assert final_line(window.summary(12.0)) == (
        "100 records sent, 50.0 records/sec (50.00 MB/sec), 50.5 ms avg latency, 100.0 ms max latency, "
        "50.0 ms 50th, 95.0 ms 95th, 99.0 ms 99th, 100.0 ms 99.9th."
    )
    assert percentile([], 50) == 0


def test_partitions_that_filters_keep() -> None:
    partition = {"leader": 1, "replicas": [1, 2, 3], "isr": [1, 2]}
    filters = (
        "under-replicated-partitions",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
    )
    kept = [name for name in filters if topic_tables.is_kept(partition, frozenset({name}), 2)]
    assert kept == ["under-replicated-partitions", "at-min-isr-partitions"]
    assert topic_tables.is_kept(
        {**partition, "leader": topic_tables.NO_LEADER}, frozenset({"unavailable-partitions"}), 1
    )


def test_lag_and_owners() -> None:
    member = SimpleNamespace(
        member_id="m",
        client_id="c",
        host="/h",
        group_instance_id=None,
        assignment=SimpleNamespace(topic_partitions=[SimpleNamespace(topic="t", partition=1)]),
    )
    group = SimpleNamespace(group_id="g", members=[member])
    rows = group_tables.offset_rows(group, {("t", 0): 5}, {("t", 0): 9, ("t", 1): 3})
    assert [(row["partition"], row["currentOffset"], row["lag"], row["consumerId"]) for row in rows] == [
        (0, 5, 4, None),
        (1, None, None, "m"),
    ]
    assert group_tables.member_row(group, member)["assignment"] == ["t(1)"]


def test_rows_of_a_log_directory() -> None:
    part = SimpleNamespace(partition_index=0, partition_size=9, offset_lag=0, is_future_key=False)
    topics = [SimpleNamespace(name=name, partitions=[part]) for name in ("b", "a")]
    good = SimpleNamespace(error_code=0, log_dir="/d", topics=topics)
    assert [row["topic"] for row in log_dirs.directory_rows(1, good, None)] == ["a", "b"]
    assert [row["topic"] for row in log_dirs.directory_rows(1, good, {"b"})] == ["b"]
    bad = SimpleNamespace(error_code=ErrorCode.kafka_storage_error, log_dir="/d", topics=[])
    assert log_dirs.directory_rows(1, bad, None)[0]["error"] == "KAFKA_STORAGE_ERROR"


def test_rows_of_a_quorum() -> None:
    def node(number: int, end: int) -> Any:
        return SimpleNamespace(
            replica_id=number,
            log_end_offset=end,
            replica_directory_id=None,
            last_fetch_timestamp=-1,
            last_caught_up_timestamp=-1,
        )

    state = SimpleNamespace(leader_id=2, current_voters=[node(1, 5), node(2, 8)], observers=[node(3, 8)])
    rows = cluster_metadata.quorum_rows(state)
    assert [(row["node"], row["status"], row["lag"]) for row in rows] == [
        (1, "Follower", 3),
        (2, "Leader", 0),
        (3, "Observer", 0),
    ]
