"""Print what pip has to install for an image, one requirement a line, read from pyproject.toml.

`requirements.py services` prints what every service needs; `requirements.py gateway` what its image needs beyond that:
the service's extra, and, where people use the command line or a client runs, what those need.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

COMMAND_LINE: Final = frozenset({"confluent-kafka", "pyyaml", "rich", "typer"})
"""What the command line and clients of a cluster need, and no service of it."""

WITH_COMMAND_LINE: Final = frozenset({"barnabas", "canary", "pipelines"})
"""Images whose program is a client of the cluster or the command line itself."""

EXTRAS: Final = {"barnabas": "controller"}
"""The extra of an image that is not named as its service: all in one, with etcd as an option and traces."""


def main(wanted: str) -> None:
    """Print the requirements of `wanted`."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    if wanted == "services":
        lines = [line for line in project["dependencies"] if _name(line) not in COMMAND_LINE]
        lines += _extra(extras, "tracing")
    else:
        lines = _extra(extras, EXTRAS.get(wanted, wanted))
        if wanted in WITH_COMMAND_LINE:
            lines = project["dependencies"] + lines
    print("\n".join(lines))  # noqa: T201


def _extra(extras: dict[str, list[str]], name: str) -> list[str]:
    """The lines of an extra, with those of the extras that it names in their place."""
    lines: list[str] = []
    for line in extras.get(name, []):
        inner = re.fullmatch(r"barnabas\[(.+)\]", line)
        lines += _extra(extras, inner[1]) if inner else [line]
    return lines


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]


if __name__ == "__main__":
    main(sys.argv[1])
