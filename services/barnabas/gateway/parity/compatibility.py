"""docs/compatibility.md, written from the handler table: `python -m barnabas.gateway.parity.compatibility`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.parity.differences import BY_DESIGN, DIFFERENCES
from barnabas.gateway.parity.replicated_differences import REPLICATED_DIFFERENCES
from barnabas.gateway.request import Handler
from barnabas.wire.schema import api_name

KAFKA_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4),
    13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
    22: (0, 5), 23: (2, 4), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3),
    31: (1, 3), 32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2),
    40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1),
    49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0),
    66: (0, 2), 68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1),
    78: (1, 2), 79: (1, 2), 80: (0, 1), 81: (0, 0), 83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip
"""The versions that a broker of Kafka 4.3 shows to clients, by API key; unstable ones are left out."""

_INTRODUCTION: Final = """\
# Compatibility with Apache Kafka

Written by `python -m barnabas.gateway.parity.compatibility` from the gateway's handler table; a test holds this
page to it.

The right column says what is knowingly missing. An API that is not served is not shown in ApiVersions, and a request
for it ends the connection, as it does at a Kafka broker that does not know the API.
What acknowledged records survive is in [durability.md](durability.md).
"""

_DIFFERENCES_INTRODUCTION: Final = """\
## Differences from Apache Kafka

`tests/golden` plays one session of requests, errors included, to Apache Kafka 4.3.1 and to Barnabas in every version of
every API that both have, and compares the answers field by field; and another one to three brokers of each, of which
some are stopped on the way. These are the differences that are left. The texts of error messages are not compared, only
whether there is one.
"""


def lines(handlers: Mapping[int, Handler]) -> Iterator[str]:
    """The page, line by line: the APIs that are served first, then the others."""
    yield from _INTRODUCTION.splitlines()
    yield ""
    yield "## Served"
    yield ""
    yield "| Key | API | Versions | Kafka 4.3 | Knowingly missing |"
    yield "|---:|---|---|---|---|"
    for key, handler in sorted(handlers.items()):
        kafka = _range(KAFKA_VERSIONS[key]) if key in KAFKA_VERSIONS else "none"
        yield f"| {key} | {api_name(key)} | {_served(handler)} | {kafka} | {_missing(handler, key)} |"
    yield ""
    yield "## Not served"
    yield ""
    yield "| Key | API | Kafka 4.3 |"
    yield "|---:|---|---|"
    for key, versions in KAFKA_VERSIONS.items():
        if key not in handlers:
            yield f"| {key} | {api_name(key)} | {_range(versions)} |"
    yield ""
    yield from _DIFFERENCES_INTRODUCTION.splitlines()
    yield ""
    yield "| API | Difference |"
    yield "|---|---|"
    for reason, apis in _reasons().items():
        yield f"| {', '.join(apis).replace('*', 'all')} | {reason} |"
    yield from (
        "",
        "And these, which such a comparison does not show:",
        "",
        "| API | Difference |",
        "|---|---|",
    )
    yield from (f"| {apis} | {difference} |" for apis, difference in BY_DESIGN)


def page(handlers: Mapping[int, Handler]) -> str:
    """The whole of docs/compatibility.md."""
    return "".join(f"{line}\n" for line in lines(handlers))


def _reasons() -> dict[str, list[str]]:
    """Each reason once, with the APIs that it is about."""
    reasons: dict[str, list[str]] = {}
    for difference in (*DIFFERENCES, *REPLICATED_DIFFERENCES):
        apis = reasons.setdefault(difference.reason, [])
        apis += [api for api in difference.apis if api not in apis]
    return reasons


def _served(handler: Handler) -> str:
    served = _range(handler.versions)
    if handler.advertised_from is None:
        return served
    return f"{served} (shown from {handler.advertised_from})"


def _missing(handler: Handler, key: int) -> str:
    sentences = [handler.lacks] if handler.lacks else []
    low, high = KAFKA_VERSIONS.get(key, handler.versions)
    shown_from = handler.versions[0] if handler.advertised_from is None else handler.advertised_from
    if shown_from > low:
        sentences.append(f"Versions below {shown_from}.")
    if handler.versions[1] < high:
        sentences.append(f"Versions above {handler.versions[1]}.")
    return " ".join(sentences)


def _range(versions: tuple[int, int]) -> str:
    low, high = versions
    return str(low) if low == high else f"{low}-{high}"


if __name__ == "__main__":
    sys.stdout.write(page(HANDLERS))
