"""Results as data: decoding, comparing, summing up, showing."""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from barnabas.pipelines.config import PipelineError
from barnabas.pipelines.demo import check_results
from barnabas.pipelines.report import Summary, delay_table, save_plot, summarize
from barnabas.pipelines.results import Delay, decode, difference, read_parquet

NEW_YEAR = datetime(2013, 1, 1, 5, tzinfo=UTC)


def delay(day: int = 0, carrier: str = "UA", origin: str = "EWR", flights: int = 10) -> Delay:
    start = NEW_YEAR + timedelta(days=day)
    return Delay(
        window_start=start,
        window_end=start + timedelta(days=1),
        carrier=carrier,
        carrier_name=f"{carrier} Inc.",
        origin=origin,
        origin_name="Newark",
        flights=flights,
        flights_cancelled=1,
        flights_arrived=flights - 2,
        departure_delay_minutes_mean=1.5,
        departure_delay_minutes_max=30,
        arrival_delay_minutes_mean=-2.25,
        arrival_delay_minutes_max=25,
    )


def as_json(value: Delay) -> bytes:
    fields = asdict(value)
    for name in ("window_start", "window_end"):
        fields[name] = fields[name].isoformat().replace("+00:00", ".000Z")
    return json.dumps(fields).encode()


def test_decode_reads_what_the_job_writes() -> None:
    cancelled = replace(delay(), arrival_delay_minutes_mean=None, arrival_delay_minutes_max=None)
    assert decode(as_json(cancelled)) == cancelled


@pytest.mark.parametrize("value", [b"not json", b"{}", b'{"window_start": 3}', b"[]"])
def test_decode_refuses_other_records_in_one_line(value: bytes) -> None:
    with pytest.raises(PipelineError, match="not a result of the delays job") as caught:
        decode(value)
    assert "\n" not in str(caught.value)


def test_difference_names_key_and_field() -> None:
    one = {delay().key: delay()}
    assert difference(one, dict(one)) is None
    nearly = replace(delay(), departure_delay_minutes_mean=1.5 * (1 + 1e-12))
    assert difference(one, {nearly.key: nearly}) is None
    other = replace(delay(), departure_delay_minutes_mean=1.5001)
    found = difference(one, {other.key: other})
    assert found is not None
    assert "departure_delay_minutes_mean is 1.5 in one and 1.5001" in found
    absent = replace(delay(), arrival_delay_minutes_mean=None)
    assert difference(one, {absent.key: absent}) is not None
    assert "only one of them" in str(difference(one, {**one, delay(1).key: delay(1)}))


def test_results_that_lose_flights_are_refused() -> None:
    one = {delay().key: delay()}
    with pytest.raises(PipelineError, match="account for 10 flights, not 336,776"):
        check_results(one, one)
    with pytest.raises(PipelineError, match="result topic and Parquet differ"):
        check_results(one, {})


def test_parquet_round_trip_and_doubled_result(tmp_path: Path) -> None:
    rows = [asdict(delay(0)), asdict(delay(1))]
    folder = tmp_path / "delays.parquet"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "one.parquet")
    assert read_parquet(folder) == {delay(0).key: delay(0), delay(1).key: delay(1)}
    pq.write_table(pa.Table.from_pylist(rows[:1]), folder / "two.parquet")
    with pytest.raises(PipelineError, match="1 results stand there more than once"):
        read_parquet(folder)


@given(st.lists(st.lists(st.integers(-60, 600), max_size=8), min_size=1, max_size=6))
def test_summary_of_window_means_is_the_mean_of_all_flights(windows: list[list[int]]) -> None:
    summary = Summary()
    for minutes in windows:
        mean = sum(minutes) / len(minutes) if minutes else None
        summary.add(
            replace(
                delay(flights=len(minutes) + 1),
                flights_arrived=len(minutes),
                departure_delay_minutes_mean=mean,
                arrival_delay_minutes_mean=mean,
            )
        )
    every = [minute for minutes in windows for minute in minutes]
    expected = sum(every) / len(every) if every else 0.0
    assert math.isclose(summary.departure_delay_mean, expected, abs_tol=1e-9)
    assert math.isclose(summary.arrival_delay_mean, expected, abs_tol=1e-9)


def test_table_shows_totals_most_flights_first() -> None:
    delays = [delay(0), delay(0, "DL", "JFK", flights=1200), delay(1)]
    assert list(summarize(delays)) == [("DL Inc.", "JFK"), ("UA Inc.", "EWR")]
    out = io.StringIO()
    Console(file=out, width=120).print(delay_table(delays))
    assert "1,220" in out.getvalue()
    assert out.getvalue().index("DL Inc.") < out.getvalue().index("UA Inc.")


def test_plot_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "delays.png"
    save_plot([delay(day, carrier) for day in range(3) for carrier in ("UA", "DL")], path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
