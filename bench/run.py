"""`make bench`: Barnabas beside Apache Kafka, the same clients and settings, run by run in turn. Reports, never judges.

python bench/run.py [--quick] [--only PATTERN] [--against kafka|none|FOLDER] [--without-separate] [--runs N]
                    [--seconds S]
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import json
import os
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import report
from coordinator_workloads import COORDINATOR_WORKLOADS
from machine import describe_machine
from replicated_workloads import REPLICATED_WORKLOADS, wait_for_brokers
from systems import REPOSITORY, Starting, System, barnabas, kafka, kafka_version, separate
from three_brokers import barnabas_of_three, kafka_of_three
from workloads import WORKLOADS, Workload, throughput

ALL: Final = (*WORKLOADS, *COORDINATOR_WORKLOADS, *REPLICATED_WORKLOADS)
RUNS, QUICK_RUNS = 3, 1
SECONDS, QUICK_SECONDS = 4.0, 2.0
WARM_UP_SECONDS: Final = 3.0
"""Before anything is measured each system carries this much of the heaviest work, so that the JVM has compiled it."""


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure Barnabas beside Apache Kafka.", epilog=_names()
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="workloads to run: names, * and ? stand for any",
    )
    parser.add_argument(
        "--against",
        default="kafka",
        help="what to compare with: kafka, none, or the folder of another checkout",
    )
    parser.add_argument(
        "--without-separate",
        action="store_true",
        help="leave out the column of Barnabas with each service a process of its own",
    )
    parser.add_argument(
        "--runs", type=int, help=f"rounds of runs of each workload ({RUNS}; quick {QUICK_RUNS})"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"about how long one run takes ({SECONDS:.0f}; quick {QUICK_SECONDS:.0f})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: fewer workloads, one short run of each"
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build" / "bench", help="where files go")
    arguments = parser.parse_args(words)
    arguments.runs = arguments.runs or (QUICK_RUNS if arguments.quick else RUNS)
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    return arguments


def _names() -> str:
    return "workloads:\n" + "\n".join(f"  {workload.name}\n      {workload.about}" for workload in ALL)


def chosen(arguments: argparse.Namespace) -> list[Workload]:
    """The workloads to run; SystemExit where a pattern fits none."""
    for pattern in arguments.only:
        if not any(fnmatch.fnmatch(workload.name, pattern) for workload in ALL):
            raise SystemExit(f"--only {pattern} fits no workload; --help lists them")
    if arguments.only:
        return [w for w in ALL if any(fnmatch.fnmatch(w.name, pattern) for pattern in arguments.only)]
    return [workload for workload in ALL if workload.is_quick or not arguments.quick]


def run_all(workloads: list[Workload], systems: dict[str, Starting], runs: int, seconds: float) -> list[Any]:
    """One entry for each run: workload, system, number and figures. The systems take turns."""
    entries: list[dict[str, Any]] = []

    def note(workload: Workload, name: str, number: int, figures: dict[str, float]) -> None:
        entries.append({"workload": workload.name, "system": name, "run": number, "figures": figures})
        shown = "  ".join(f"{key} {figures[key]:.4g}" for key in list(figures)[:4])
        print(f"{time.strftime('%H:%M:%S')}  {name:9} {workload.name}  {shown}", file=sys.stderr, flush=True)

    for workload in (w for w in workloads if w.needs_fresh):
        for number in range(runs):
            for name, start in systems.items():
                with start() as system:
                    note(workload, name, number, workload.run(system, "first", seconds))
    lasting = [workload for workload in workloads if not workload.needs_fresh]
    if not lasting:
        return entries
    with contextlib.ExitStack() as stack:
        up = {name: stack.enter_context(start()) for name, start in systems.items()}
        for system in up.values():
            _warm_up(system)
        for workload in lasting:
            for number in range(runs):
                for name, system in up.items():
                    topic = f"{workload.name}-{number}".replace("*", "")
                    note(workload, name, number, workload.run(system, topic, seconds))
    return entries


def _warm_up(system: System) -> None:
    from clients.requests import first_acknowledged

    replicas = 3 if system.ports else 1
    if system.ports:
        wait_for_brokers(system)
    else:
        first_acknowledged("127.0.0.1", system.port, "warm-up-first", 120)
    seconds = WARM_UP_SECONDS / replicas
    throughput("librdkafka", 1, 100, system, "warm-up-100b", seconds, replicas=replicas)
    throughput("librdkafka", 16, 1024, system, "warm-up-1kb", seconds, replicas=replicas)


def main() -> None:
    arguments = parse_arguments()
    # Five thousand connections have two ends, and partitions have files: children inherit this.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    workloads = chosen(arguments)
    systems: dict[str, Starting] = {report.OURS: barnabas}
    of_three: dict[str, Starting] = {report.OURS: barnabas_of_three}
    if not arguments.without_separate:
        systems[report.SEPARATE] = separate
    against = None
    if arguments.against == "kafka":
        against = f"Kafka {kafka_version()}"
        systems["kafka"], of_three["kafka"] = kafka, kafka_of_three
    elif arguments.against != "none":
        against, checkout = "baseline", Path(arguments.against)
        systems["baseline"] = partial(barnabas, checkout)
        of_three["baseline"] = partial(barnabas_of_three, checkout)
    began = datetime.datetime.now(datetime.UTC)
    load_before = os.getloadavg()[0]
    entries = []
    for brokers, started in ((1, systems), (3, of_three)):
        some = [workload for workload in workloads if workload.brokers == brokers]
        entries += run_all(some, started, arguments.runs, arguments.seconds)
    result = {
        "began": began.isoformat(timespec="seconds"),
        "minutes": round((datetime.datetime.now(datetime.UTC) - began).total_seconds() / 60, 1),
        "machine": describe_machine(),
        "load_before": load_before,
        "against": against,
        "runs": arguments.runs,
        "seconds": arguments.seconds,
        "entries": entries,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / f"{began:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    report.print_table(result)
    report.draw(result, path.with_suffix(".png"))
    print("", *(str(file) for file in (path, path.with_suffix(".png")) if file.exists()), sep="\n")


if __name__ == "__main__":
    main()
