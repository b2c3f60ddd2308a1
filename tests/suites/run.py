"""Runs clients' own suites of tests against Barnabas and writes docs/client-suites.md.

    python tests/suites/run.py                  all suites, then the page
    python tests/suites/run.py kafka-python     some of them; the page stays

It exits with 1 when a test fails that has no known reason.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

from go_suites import FranzGo, KafkaGo  # noqa: E402
from page import counts, page  # noqa: E402
from python_suites import KafkaPython  # noqa: E402
from results import Outcome, Result, explained  # noqa: E402
from running_cluster import Cluster  # noqa: E402
from suite import Suite  # noqa: E402

SUITES: Final[tuple[Suite, ...]] = (KafkaPython(), FranzGo(), KafkaGo())
WORK: Final = ROOT / "build" / "suites"
PAGE: Final = ROOT / "docs" / "client-suites.md"


def run_suite(suite: Suite) -> list[Result]:
    """Fetch one suite and run it against a cluster of its own."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = suite.fetch(WORK)
    flags = [part for setting in suite.settings for part in ("--override", setting)]
    cluster = Cluster(flags=("--host", suite.host, *flags))
    if suite.port is not None:
        cluster.port = suite.port
    cluster.bootstrap = f"{suite.host}:{cluster.port}"
    with cluster:
        results = suite.run(folder, cluster.bootstrap)
    known = {reason.why for reason in suite.reasons}
    final = explained(results, suite.reasons)
    (WORK / f"{suite.name}.json").write_text(json.dumps([vars(result) for result in final], indent=1))
    for result in final:
        if result.outcome is Outcome.FAILED and result.reason not in known:
            print(f"  {result.name}: {result.reason}", flush=True)
    return final


def unexplained(suite: Suite, results: list[Result]) -> list[Result]:
    """What failed and has no known reason."""
    known = {reason.why for reason in suite.reasons}
    return [result for result in results if result.outcome is Outcome.FAILED and result.reason not in known]


def main(names: list[str]) -> int:
    """Run the named suites, or all and write the page; returns the exit status."""
    if unknown := set(names) - {suite.name for suite in SUITES}:
        print(
            f"no suite {', '.join(sorted(unknown))}: there are {', '.join(suite.name for suite in SUITES)}",
            file=sys.stderr,
        )
        return 2
    found: dict[Suite, list[Result]] = {}
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        start = time.monotonic()
        print(f"{suite.name} {suite.version}", flush=True)
        found[suite] = run_suite(suite)
        number = counts(found[suite])
        told = ", ".join(f"{number[outcome]} {outcome}" for outcome in Outcome)
        print(f"{suite.name}: {told} in {time.monotonic() - start:.0f} s", flush=True)
    if not names:
        PAGE.write_text(page(found, datetime.now(UTC).date()))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 1 if any(unexplained(suite, results) for suite, results in found.items()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
