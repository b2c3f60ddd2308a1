"""The table of values in the chart's README, made of the comments in values.yaml.

    values_table.py            write it into charts/barnabas/README.md
    values_table.py --check    only say (status 1) whether it is stale

A line `# -- text` describes the value in the line below it; each value has one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parents[2] / "charts" / "barnabas"
START: Final = "<!-- values: made by deploy/chart-checks/values_table.py -->\n"
END: Final = "<!-- end of values -->"

KEY: Final = re.compile(r"^( *)([A-Za-z]+):(.*)$")


def described(text: str) -> dict[str, str]:
    """The sentence of each value of a values.yaml, by its path (gateway.external.type).

    Raises ValueError for a value without a sentence.
    """
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    sentence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip().startswith("# -- "):
            sentence = line.strip().removeprefix("# -- ")
            continue
        match = KEY.match(line)
        if match is None:
            continue
        indent, name, value = len(match[1]), match[2], match[3].strip()
        path = [(depth, above) for depth, above in path if depth < indent]
        path.append((indent, name))
        dotted = ".".join(above for _, above in path)
        if sentence:
            found[dotted] = sentence
        elif value:
            raise ValueError(f"values.yaml, line {number}: {dotted} has no `# -- sentence` above it")
        sentence = ""
    return found


def value_at(values: Any, path: str) -> Any:
    """The value at a dotted path."""
    for name in path.split("."):
        values = values[name]
    return values


def table(text: str) -> str:
    """The Markdown table of a values.yaml."""
    values = yaml.safe_load(text)
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for path, sentence in described(text).items():
        default = json.dumps(value_at(values, path))
        rows.append(f"| `{path}` | `{default}` | {sentence.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def with_table(readme: str, text: str) -> str:
    """`readme` with the table between its marks made anew."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"README.md has no place for the table: {START.strip()} and {END}")
    return before + start + "\n" + table(text) + "\n" + end + after


def main(arguments: list[str]) -> None:
    """Write or check; see the top of this file."""
    readme = CHART / "README.md"
    old = readme.read_text()
    new = with_table(old, (CHART / "values.yaml").read_text())
    if arguments == ["--check"]:
        if new != old:
            sys.exit("charts/barnabas/README.md is stale: run deploy/chart-checks/values_table.py")
    elif arguments:
        sys.exit("usage: values_table.py [--check]")
    else:
        readme.write_text(new)


if __name__ == "__main__":
    main(sys.argv[1:])
