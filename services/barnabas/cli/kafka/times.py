"""Points in time and lengths of time as people write them, in milliseconds. The present is an argument."""

from __future__ import annotations

import datetime
import re
from typing import Final

from barnabas.cli.refusal import usage

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_RELATIVE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)(?:\s+ago)?")
_ISO_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<d>[+-]?\d+)D)?(?:T(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+(?:\.\d+)?)S)?)?"
)
MILLISECONDS_MIN: Final = 1_000_000_000_000
"""A bare number below this is seconds since the epoch (until the year 33658), above it milliseconds."""


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch of `10m ago`, `now`, an ISO 8601 time (UTC without a zone), or a number."""
    text = text.strip()
    if text == "now":
        return now_ms
    if relative := _RELATIVE.fullmatch(text):
        return now_ms - round(float(relative[1]) * _SECONDS[relative[2]] * 1000)
    if re.fullmatch(r"\d+", text):
        number = int(text)
        return number if number >= MILLISECONDS_MIN else number * 1000
    return parse_iso_time(text)


def parse_iso_time(text: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 date or time; without a zone it is UTC, as in Kafka's tools."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise usage(
            f"{text!r} is no time: write 2026-01-31T12:00:00, 2026-01-31T12:00:00+01:00, now or 10m ago"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Milliseconds in an ISO 8601 duration (`P1DT2H30M`, as Kafka takes it) or in `10m`, `2h`."""
    if relative := _RELATIVE.fullmatch(text.strip()):
        return round(float(relative[1]) * _SECONDS[relative[2]] * 1000)
    found = _ISO_DURATION.fullmatch(text.strip())
    parts = {unit: found[unit] for unit in "dhms" if found[unit] is not None} if found else {}
    if not found or not parts or text.strip().endswith("T"):
        raise usage(f"{text!r} is no duration: write P1DT2H30M, PT10M or 10m")
    milliseconds = round(sum(float(parts[unit]) * _SECONDS[unit] for unit in parts) * 1000)
    return -milliseconds if found["sign"] == "-" else milliseconds


def iso_time(milliseconds: int) -> str:
    """`2026-01-31T12:00:00.000Z`."""
    moment = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
