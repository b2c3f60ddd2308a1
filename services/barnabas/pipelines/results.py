"""The job's result as plain data, read back from the result topic and from Parquet."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from barnabas.pipelines.config import PipelineConfig, PipelineError
from barnabas.pipelines.topics import read_to_end

RELATIVE_ERROR_MAX = 1e-9
"""Two means that differ by no more are the same: engines add in different orders."""


@dataclass(frozen=True)
class Delay:
    """Delays of one carrier's flights from one airport on one day. Delays are minutes, early is negative.

    A mean or maximum is None where no flight departed (arrived). Field names are the Parquet columns'.
    """

    window_start: datetime
    window_end: datetime
    carrier: str
    carrier_name: str | None
    origin: str
    origin_name: str | None
    flights: int
    flights_cancelled: int
    flights_arrived: int
    departure_delay_minutes_mean: float | None
    departure_delay_minutes_max: int | None
    arrival_delay_minutes_mean: float | None
    arrival_delay_minutes_max: int | None

    @property
    def key(self) -> tuple[datetime, str, str]:
        """What tells two results apart: window, carrier, origin."""
        return self.window_start, self.carrier, self.origin


Delays = dict[tuple[datetime, str, str], Delay]


def decode(value: bytes) -> Delay:
    """A result record's JSON as `Delay`; raises `PipelineError` if it is not one."""
    try:
        fields = json.loads(value)
        for name in ("window_start", "window_end"):
            fields[name] = datetime.fromisoformat(fields[name]).astimezone(UTC)
        return Delay(**fields)
    except (ValueError, TypeError, KeyError) as error:
        raise PipelineError(f"not a result of the delays job: {value[:80]!r} ({error})") from error


def read_result_topic(config: PipelineConfig, topic: str) -> Delays:
    """Results by key, the last record of a key winning, as compaction would leave them."""
    values = (value for _, value in read_to_end(config, topic) if value is not None)
    return {delay.key: delay for delay in map(decode, values)}


def read_parquet(path: Path) -> Delays:
    """Results by key from the job's Parquet folder; raises `PipelineError` if a key stands there twice."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path).to_pylist()
    for row in rows:
        for name in ("window_start", "window_end"):
            row[name] = row[name].astimezone(UTC)
    delays = {delay.key: delay for delay in (Delay(**row) for row in rows)}
    if len(delays) != len(rows):
        raise PipelineError(f"{path}: {len(rows) - len(delays)} results stand there more than once")
    return delays


def difference(left: Delays, right: Delays) -> str | None:
    """What first differs between two results, as one line; None if every value is the same."""
    if left.keys() != right.keys():
        key = min(left.keys() ^ right.keys())
        return f"{len(left)} results against {len(right)}; {key} is in only one of them"
    for key, one in left.items():
        other = asdict(right[key])
        for name, value in asdict(one).items():
            if not same(value, other[name]):
                return f"{key}: {name} is {value!r} in one and {other[name]!r} in the other"
    return None


def same(one: object, other: object) -> bool:
    """Equal, or two floats within `RELATIVE_ERROR_MAX` of each other."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE_ERROR_MAX)
    return one == other
