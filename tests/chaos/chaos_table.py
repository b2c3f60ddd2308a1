"""What many faults came to, as a table for a terminal and for docs/durability.md."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from chaos_plan import CONTROL, KINDS
from chaos_round import Outcome, Seen

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "durability.md"
BEGINS, ENDS = "<!-- chaos: make chaos ARGS=--docs -->", "<!-- chaos ends -->"


def describe(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown, and what clients did meanwhile."""
    heads = (
        "fault",
        "times",
        "pause of a partition, median",
        "of the one that paused longest, median",
        "worst",
        "all served and in sync again, median",
        "worst",
    )
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|---|---|"]
    seen = [each for outcome in outcomes for each in outcome.seen]
    faults = [each for outcome in outcomes for each in outcome.faults]
    for kind in KINDS:
        if found := [each for each in faults if each.fault.kind == kind]:
            rows.append(_row(kind, found))
    if faults:
        rows.append(_row("**all**", faults))
    if no_faults := [each for each in seen if each.fault.kind == CONTROL]:
        rows.append(_row(f"no fault: {CONTROL}", no_faults))
    return "\n".join([_sentence(outcomes), "", *rows])


def _sentence(outcomes: Sequence[Outcome]) -> str:
    def total(name: str) -> int:
        return sum(getattr(each, name) for each in outcomes)

    forms = Counter(f"{each.form} with {each.protocol} groups" for each in outcomes)
    clusters = ", ".join(f"{count} {form}" for form, count in sorted(forms.items()))
    faults = sum(len(each.faults) for each in outcomes)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {faults} faults in {len(outcomes)} clusters ({clusters}): "
        f"{total('acknowledged')} records acknowledged, {total('read')} read, {total('latest_offsets')} looks at high "
        f"watermarks and {total('committed_offsets')} at committed offsets, {total('copied')} copied in transactions, "
        f"{total('aborted')} copies aborted; "
        f"promises broken: {sum(len(each.violations) for each in outcomes)}."
    )


def _row(kind: str, found: Sequence[Seen]) -> str:
    pauses = [pause for each in found for pause in each.pauses] or [0.0]
    longest = [max(each.pauses) for each in found] or [0.0]
    served = [each.serves_after for each in found] or [0.0]
    of_longest = statistics.median(longest), max(longest)
    numbers = (statistics.median(pauses), *of_longest, statistics.median(served), max(served))
    return f"| {kind} | {len(found)} | {' | '.join(f'{number:.2f} s' for number in numbers)} |"


def write_into_page(table: str) -> None:
    """Put it between its marks in docs/durability.md."""
    text = PAGE.read_text()
    marked = re.compile(f"{re.escape(BEGINS)}.*?{re.escape(ENDS)}", re.DOTALL)
    assert marked.search(text), f"{PAGE} has no place for it"
    PAGE.write_text(marked.sub(lambda _: f"{BEGINS}\n\n{table}\n\n{ENDS}", text))
