"""From the JSON of a run to a table, a plot, and the figures in docs/performance.md.

python bench/report.py build/bench/TIME.json [--docs]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from figures import FIGURES, Spread, paired_ratios, spread_of

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
BEGIN_OF_THREE, END_OF_THREE = "<!-- figures of three: begin -->", "<!-- figures of three: end -->"
BEGIN_QUIET, END_QUIET = "<!-- figures of quiet: begin -->", "<!-- figures of quiet: end -->"
OF_THREE: Final = "three-brokers-"
QUIET: Final = "quiet-"
PLACES: Final = ((OF_THREE, BEGIN_OF_THREE, END_OF_THREE), (QUIET, BEGIN_QUIET, END_QUIET), ("", BEGIN, END))
"""How the names of workloads begin whose figures have a place of their own on the page, and that place; the first that
fits.
"""
OURS: Final = "barnabas"
SEPARATE: Final = "separate"
"""Ours with each service a process of its own."""
RATIO, SEPARATE_RATIO = "ratio", "ratio of separate"


@dataclass(frozen=True)
class Row:
    """One figure of one workload, of all runs. The ratios to `theirs` are above 1 where Barnabas is the better one."""

    workload: str
    figure: str
    ours: Spread
    separate: Spread | None
    theirs: Spread | None
    ratio: Spread | None
    separate_ratio: Spread | None

    @property
    def title(self) -> str:
        return f"{FIGURES[self.figure].title}, {FIGURES[self.figure].unit}"


def rows_of(result: dict[str, Any]) -> list[Row]:
    """All rows of a result, in the order in which they were measured."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for entry in result["entries"]:
        for figure, value in entry["figures"].items():
            if figure in FIGURES:
                by_system = values.setdefault((entry["workload"], figure), {})
                by_system.setdefault(entry["system"], []).append(value)
    rows = []
    for (workload, figure), by_system in values.items():
        ours, separate = by_system[OURS], by_system.get(SEPARATE, [])
        theirs = next((found for name, found in by_system.items() if name not in (OURS, SEPARATE)), [])
        rows.append(
            Row(
                workload,
                figure,
                spread_of(ours),
                spread_of(separate) if separate else None,
                spread_of(theirs) if theirs else None,
                _ratio(figure, ours, theirs),
                _ratio(figure, separate, theirs),
            )
        )
    return rows


def _ratio(figure: str, ours: list[float], theirs: list[float]) -> Spread | None:
    """The spread of the ratios of the rounds; None where there is nothing to compare."""
    if not ours or not theirs or not FIGURES[figure].is_compared:
        return None
    ratios = paired_ratios(figure, ours, theirs)
    return spread_of(ratios) if ratios else None


def columns_of(result: dict[str, Any]) -> list[str]:
    """What the columns of a table are called, the figure's first."""
    has_separate = any(entry["system"] == SEPARATE for entry in result["entries"])
    heads = ["figure", "Barnabas", *([SEPARATE] if has_separate else [])]
    if result["against"]:
        heads += [result["against"], RATIO, *([SEPARATE_RATIO] if has_separate else [])]
    return heads


def cells_of(row: Row, heads: list[str]) -> list[str]:
    """The cells of a row under `heads`, without the figure's."""
    texts = {"Barnabas": ranged(row.ours, row.figure), RATIO: ratio_text(row.ratio)}
    texts |= {SEPARATE: _shown(row.separate, row.figure), SEPARATE_RATIO: ratio_text(row.separate_ratio)}
    return [texts.get(head, _shown(row.theirs, row.figure)) for head in heads[1:]]


def _shown(spread: Spread | None, figure: str) -> str:
    return ranged(spread, figure) if spread is not None else ""


def number(value: float, figure: str) -> str:
    return f"{value:,.{FIGURES[figure].digits}f}"


def ranged(spread: Spread, figure: str) -> str:
    """The median, with the range behind it where there was more than one run."""
    text = number(spread.median, figure)
    if spread.low != spread.high:
        text += f" ({number(spread.low, figure)}-{number(spread.high, figure)})"
    return text


def ratio_text(ratio: Spread | None) -> str:
    if ratio is None:
        return ""
    text = f"{ratio.median:.2f}"
    return text if ratio.low == ratio.high else f"{text} ({ratio.low:.2f}-{ratio.high:.2f})"


def conditions(result: dict[str, Any]) -> str:
    """One paragraph: when, on what, how often."""
    machine = result["machine"]
    beside = f", beside {result['against']} (Java {machine['java']})" if result["against"] else ""
    return (
        f"{result['began'][:10]}, {machine['cores']} cores of {machine['processor']}, {machine['memory']}, shared by "
        f"servers and clients; Linux {machine['kernel']}, Python {machine['python']}, librdkafka "
        f"{machine['librdkafka']}{beside}. {result['runs']} rounds of about {result['seconds']:.0f} s each, the "
        f"systems in turn; load before the start {result['load_before']:.2f}; {result['minutes']} minutes in all."
    )


def print_table(result: dict[str, Any]) -> None:
    """The table on the terminal: median and range of each system, ratio and its range."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Barnabas beside {result['against']}" if result["against"] else "Barnabas")
    heads = columns_of(result)
    for head in heads:
        is_first = head == heads[0]
        table.add_column(head, justify="left" if is_first else "right", no_wrap=is_first)
    workload = ""
    for row in rows_of(result):
        if row.workload != workload:
            workload = row.workload
            table.add_section()
            table.add_row(f"[bold]{workload}")
        cells = [f"  {row.title}", *cells_of(row, heads)]
        for head, ratio in ((RATIO, row.ratio), (SEPARATE_RATIO, row.separate_ratio)):
            if ratio is not None:
                colour = "green" if ratio.median >= 1 else "yellow"
                cells[heads.index(head)] = f"[{colour}]{ratio_text(ratio)}"
        table.add_row(*cells)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(conditions(result), soft_wrap=True)
    if result["against"]:
        console.print("A ratio is above 1 where Barnabas is the better one; the range is that of the rounds.")


def draw(result: dict[str, Any], path: Path) -> None:
    """The ratios as bars on a logarithmic axis, with the range of the pairs; without ratios, nothing."""
    rows = [row for row in rows_of(result) if row.ratio is not None]
    if not rows:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(11, 1.7 + 0.27 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        assert row.ratio is not None
        ratio = row.ratio
        colour = "#2a7f62" if ratio.median >= 1 else "#c8663a"
        axes.barh(place, ratio.median - 1, left=1, color=colour, height=0.7)
        axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=1)
        if row.separate_ratio is not None:
            axes.plot(
                row.separate_ratio.median, place, "D", color="#34558b", markeredgecolor="white", markersize=6
            )
        axes.annotate(f" {ratio.median:.2f} ", (ratio.high if ratio.median >= 1 else ratio.low, place),
                      ha="left" if ratio.median >= 1 else "right", va="center", fontsize=7)  # fmt: skip
    axes.set_yticks(range(len(rows)), [f"{row.workload}: {row.title}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    drawn = [ratio for row in rows for ratio in (row.ratio, row.separate_ratio) if ratio is not None]
    low, high = min(ratio.low for ratio in drawn), max(ratio.high for ratio in drawn)
    axes.set_xlim(min(low, 1) / 1.5, max(high, 1) * 1.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    axes.axvline(1, color="black", linewidth=1)
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.set_axisbelow(True)
    axes.set_title(
        f"Barnabas beside {result['against']}, {result['began'][:10]}, {result['machine']['cores']} cores\n"
        "ratio of each round of runs: median and range; right of 1 Barnabas is the better one"
        + (
            "\ndiamonds: each service a process of its own" if any(row.separate_ratio for row in rows) else ""
        ),
        fontsize=9,
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def markdown(result: dict[str, Any]) -> str:
    """The figures as the page has them: one table a workload."""
    return "\n".join([conditions(result), "", *_markdown_lines(result)])


def _markdown_lines(result: dict[str, Any]) -> Iterator[str]:
    heads = columns_of(result)
    workload = ""
    for row in rows_of(result):
        if row.workload != workload:
            if workload:
                yield ""
            workload = row.workload
            yield from (
                f"**{workload}**",
                "",
                f"| {' | '.join(heads)} |",
                "|---" + "|---:" * (len(heads) - 1) + "|",
            )
        cells = [row.title, *cells_of(row, heads)]
        yield f"| {' | '.join(cells)} |"


def fill_in(page: str, result: dict[str, Any]) -> str:
    """`page` with the figures of `result` between their marks; ValueError without them."""
    for place in PLACES:
        _, begin, end = place
        entries = _entries_at(place, result)
        if not entries:
            continue
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise ValueError(f"the page lacks the marks {begin} and {end}")
        page = f"{before}{begin}\n{markdown({**result, 'entries': entries})}\n{end}{after}"
    return page


def _entries_at(place: tuple[str, str, str], result: dict[str, Any]) -> list[dict[str, Any]]:
    def place_of(name: str) -> tuple[str, str, str]:
        return next(each for each in PLACES if name.startswith(each[0]))

    return [entry for entry in result["entries"] if place_of(entry["workload"]) is place]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Show a result of `make bench` again, or put it into the docs."
    )
    parser.add_argument("result", type=Path, help="a JSON file that `make bench` wrote")
    parser.add_argument(
        "--docs", action="store_true", help="write the figures and the plot into docs/performance.md"
    )
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text())
    print_table(result)
    if arguments.docs:
        page = DOCS / "performance.md"
        page.write_text(fill_in(page.read_text(), result))
        draw({**result, "entries": _entries_at(PLACES[-1], result)}, DOCS / "performance.png")


if __name__ == "__main__":
    main()
