"""Play a session and print what differs: `python tests/golden [--replicated] [part of a scenario's name]`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from golden_comparison import EXPLAINED_OF_THREE, compare, sort_out
from golden_recorder import record, record_replicated, summary

from barnabas.gateway.parity.differences import DIFFERENCES


def main() -> None:
    """Exit with 1 where something is unexplained."""
    started = time.monotonic()
    words = sys.argv[1:]
    of_three = "--replicated" in words
    kafka, ours = record_replicated() if of_three else record(*words[:1])
    found = compare(kafka.answers, ours.answers)
    unexplained, used = sort_out(found, EXPLAINED_OF_THREE if of_three else DIFFERENCES)
    for line in summary(unexplained):
        print(line)
    for known, matched in used.items():
        print(f"{len(matched):4} explained: {known.reason}")
    seconds = time.monotonic() - started
    print(
        f"{len(kafka.answers)} answers, {len(found)} differences, {len(unexplained)} unexplained, {seconds:.0f} s"
    )
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
