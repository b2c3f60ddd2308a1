"""The dataset module against the package's own files."""

from __future__ import annotations

import importlib.util
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from barnabas.pipelines.config import PipelineError
from barnabas.pipelines.dataset import FLIGHT_COLUMNS, FLIGHTS_TOTAL, flights, table_path
from barnabas.pipelines.delays_job import WINDOW_START


def test_every_row_is_there_with_missing_values_as_none() -> None:
    missing: Counter[str] = Counter()
    total = 0
    for flight in flights():
        total += 1
        for name, value in flight.items():
            if value is None:
                missing[name] += 1
    assert total == FLIGHTS_TOTAL
    # The counts that the data set's own documentation leads to: cancelled, diverted, without tail number.
    assert missing == {
        "dep_time": 8255,
        "dep_delay": 8255,
        "arr_time": 8713,
        "arr_delay": 9430,
        "air_time": 9430,
        "tailnum": 2512,
    }


def test_a_window_is_a_local_calendar_day() -> None:
    hours, unit = WINDOW_START.split()
    assert unit == "hours"
    for flight in flights():
        scheduled = datetime.fromisoformat(str(flight["time_hour"]))
        assert scheduled.tzinfo is UTC
        local = (scheduled - timedelta(hours=int(hours))).date()
        assert (local.year, local.month, local.day) == (flight["year"], flight["month"], flight["day"])


def test_first_flight_has_the_columns_types() -> None:
    first = next(flights())
    assert list(first) == list(FLIGHT_COLUMNS)
    assert all(isinstance(first[name], kind) for name, kind in FLIGHT_COLUMNS.items())
    assert (first["carrier"], first["flight"], first["time_hour"]) == ("UA", 1545, "2013-01-01T10:00:00Z")


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"pip install 'barnabas\[pipelines\]'"):
        table_path("flights.csv.zip")
