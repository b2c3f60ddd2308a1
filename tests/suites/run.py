"""Runs clients' own suites of tests against Barnabas and a real Apache Kafka, and writes docs/client-suites.md.

    python tests/suites/run.py                          all suites against both, then the page
    python tests/suites/run.py kafka-python             some of them against Barnabas; the page stays
    python tests/suites/run.py --kafka kafka-python     against Apache Kafka; the page stays
    python tests/suites/run.py --page                   the page alone, from the last runs' outcomes in build/suites

It exits with 1 when a test fails against Barnabas that has no known reason.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent / "golden")]

from clusters import CLUSTERS, kafka_name  # noqa: E402
from go_suites import FranzGo, KafkaGo  # noqa: E402
from page import counts, page  # noqa: E402
from python_suites import KafkaPython  # noqa: E402
from results import Outcome, Result, Run, explained, read_run, write_run  # noqa: E402
from sarama_suite import Sarama  # noqa: E402
from suite import Suite  # noqa: E402

SUITES: Final[tuple[Suite, ...]] = (KafkaPython(), FranzGo(), KafkaGo(), Sarama())
WORK: Final = ROOT / "build" / "suites"
PAGE: Final = ROOT / "docs" / "client-suites.md"


def run_suite(suite: Suite, system: str) -> list[Result]:
    """Fetch one suite and run it against a cluster of its own; the outcomes go to build/suites too."""
    WORK.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    print(f"{suite.name} {suite.version} against {system}", flush=True)
    folder = suite.fetch(WORK)
    with CLUSTERS[system](suite) as cluster:
        results = suite.run(folder, cluster)
    if system == "barnabas":
        results = explained(results, suite.reasons)
    write_run(_kept(suite, system), Run(datetime.now(UTC).date(), results))
    for result in unexplained(suite, results):
        print(f"  {result.name}: {result.reason}", flush=True)
    number = counts(results)
    told = ", ".join(f"{number[outcome]} {outcome}" for outcome in Outcome)
    print(f"{suite.name}: {told} in {time.monotonic() - start:.0f} s", flush=True)
    return results


def _kept(suite: Suite, system: str) -> Path:
    return WORK / f"{suite.name}.{system}.json"


def unexplained(suite: Suite, results: list[Result]) -> list[Result]:
    """What failed and has no known reason."""
    known = {reason.why for reason in suite.reasons}
    return [result for result in results if result.outcome is Outcome.FAILED and result.reason not in known]


def main() -> int:
    """Run the named suites, or all against both and write the page; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run clients' own tests.")
    names = [suite.name for suite in SUITES]
    parser.add_argument("suites", nargs="*", choices=[[], *names], metavar="SUITE", help=", ".join(names))
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka in place of Barnabas")
    parser.add_argument("--page", action="store_true", help="write the page from the last runs' outcomes")
    wanted = parser.parse_args()
    suites = [suite for suite in SUITES if not wanted.suites or suite.name in wanted.suites]
    ours: dict[Suite, list[Result]] = {}
    if not wanted.page and not wanted.kafka:
        ours = {suite: run_suite(suite, "barnabas") for suite in suites}
    if not wanted.page and (wanted.kafka or not wanted.suites):
        for suite in suites:
            run_suite(suite, "kafka")
    if wanted.page or not (wanted.suites or wanted.kafka):
        _write_page()
    return 1 if any(unexplained(suite, results) for suite, results in ours.items()) else 0


def _write_page() -> None:
    ours = {suite: read_run(_kept(suite, "barnabas")) for suite in SUITES}
    theirs = {suite: read_run(_kept(suite, "kafka")) for suite in SUITES}
    PAGE.write_text(page(ours, theirs, kafka_name()))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
