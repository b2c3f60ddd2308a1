"""Rows for people and for programs: a coloured table on a terminal, aligned columns in a pipe, JSON or YAML.

Rich is imported for a terminal alone: a script that calls the command in a loop does not pay for it.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


class OutputFormat(enum.StrEnum):
    """How results are written to stdout."""

    table = "table"
    json = "json"
    yaml = "yaml"


@dataclass(frozen=True)
class Column:
    """One column of a table: the row's key, its title, how it looks on a terminal."""

    key: str
    title: str
    style: str = ""
    is_number: bool = False


def show_rows(
    rows: Sequence[Row],
    columns: Sequence[Column],
    output: OutputFormat,
    *,
    title: str = "",
    plain_line: Callable[[Row], str] | None = None,
) -> None:
    """Write `rows` to stdout. JSON and YAML have every key of a row, the table those in `columns`.

    `plain_line` gives the line for a pipe where programs already read one of Kafka's own.
    """
    if output is not OutputFormat.table:
        show_document(list(rows), output)
    elif sys.stdout.isatty():
        _show_table(rows, columns, title)
    elif plain_line is not None:
        _write_lines([plain_line(row) for row in rows])
    else:
        _write_lines(plain_table(rows, columns))


def show_document(document: Any, output: OutputFormat) -> None:
    """Write one value as JSON or YAML."""
    if output is OutputFormat.yaml:
        import yaml

        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    else:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()


def plain_table(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Aligned columns under their titles, no line when there are no rows."""
    if not rows:
        return []
    cells = [[column.title for column in columns]]
    cells += [[plain_text(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return ["  ".join(_aligned(line, widths, columns)).rstrip() for line in cells]


def plain_text(value: Any) -> str:
    """A value in a table's cell; what is not known or does not apply is `-`."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "-"
    return str(value)


def counted(count: int, noun: str) -> str:
    """`1 replica`, `2,000 replicas`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def say(line: str) -> None:
    """A line for the person at the terminal, on stderr: stdout carries results only."""
    sys.stderr.write(f"barnabas: {line}\n")
    sys.stderr.flush()


def _aligned(line: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> list[str]:
    return [
        text.rjust(width) if column.is_number else text.ljust(width)
        for text, width, column in zip(line, widths, columns, strict=True)
    ]


def _write_lines(lines: Sequence[str]) -> None:
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _show_table(rows: Sequence[Row], columns: Sequence[Column], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, box=box.ROUNDED, header_style="bold", title_justify="left")
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.is_number else "left", style=column.style, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(plain_text(row.get(column.key))) for column in columns))
    console = Console()
    if rows:
        console.print(table)
    else:
        console.print(f"[dim]{title or 'nothing to show'}: none[/dim]")
