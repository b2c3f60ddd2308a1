"""Runs seeds of the simulation.

    make simulate ARGS="--seeds 0-99"                            a hundred seeds, on all cores: of each a run whose
                                                                 topics have one replica, and one where they have three
    make simulate ARGS="--seeds 0-99 --replication-factor 3"     only the latter
    make simulate ARGS="--seeds 7 --replication-factor 3 --trace build/7.txt"     one run, with all that happened
    make simulate ARGS="--seeds 7 --replication-factor 3 --without 0,2"           without some of its faults
    make simulate ARGS="--seeds 0-99 --plant skip-data-sync"     with a fault planted into the code

It exits with 1 when a seed fails, and says with which command that is seen again: the first that fail are shrunk
before, to the faults that they need.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from barnabas.kernel.service import prepare_imports  # noqa: E402

prepare_imports()

from planted_faults import PLANTED, planted  # noqa: E402
from simulated_cluster import run_seed  # noqa: E402

LINES_SHOWN: Final = 40

FACTORS: Final = (1, 3)
"""Replicas of each partition, where nobody says how many."""

SHRUNK_MAX: Final = 2
"""So many of the runs that fail are shrunk; the others' causes are often the same."""

SHRINK_SECONDS_MAX: Final = 120.0
"""After which what is left of a run's faults is good enough."""


class Job(NamedTuple):
    """What one process is to do."""

    seed: int
    replication_factor: int
    without: tuple[int, ...]
    plant: str
    trace: str


class Result(NamedTuple):
    """What is told of a run."""

    job: Job
    violations: tuple[str, ...]
    faults: tuple[str, ...]
    tail: tuple[str, ...]
    digest: str
    virtual_seconds: float
    real_seconds: float
    sent: int
    acknowledged: int
    read: int
    cleanings: int


def run_job(job: Job) -> Result:
    """One seed, in whichever process."""
    with planted(job.plant):
        outcome = run_seed(job.seed, job.replication_factor, without=job.without, keeps_trace=bool(job.trace))
    if job.trace:
        Path(job.trace).write_text("\n".join(outcome.trace.lines) + "\n")
    return Result(
        job,
        outcome.violations,
        tuple(map(str, outcome.plans.faults)),
        tuple(outcome.trace.lines)[-LINES_SHOWN:] if outcome.violations else (),
        outcome.trace.digest,
        outcome.virtual_seconds,
        outcome.real_seconds,
        outcome.sent,
        outcome.acknowledged,
        outcome.read,
        outcome.cleanings,
    )


def fewest_faults(job: Job, count: int) -> tuple[int, ...]:
    """The faults, of `count`, that a run which fails can do without: found by leaving out one after the other, until
    none of those that are left can go.
    """
    without, ends_at = set(job.without), time.monotonic() + SHRINK_SECONDS_MAX
    before: set[int] | None = None
    while without != before:
        before = set(without)
        for number in set(range(count)) - without:
            if time.monotonic() > ends_at:
                return tuple(sorted(without))
            if fails(run_job(job._replace(without=(*sorted(without), number), trace=""))):
                without.add(number)
    return tuple(sorted(without))


def fails(result: Result) -> bool:
    """Whether it shows what was planted, if something was, or else anything wrong."""
    plant = PLANTED.get(result.job.plant)
    return bool(result.violations) if plant is None else plant.is_found_by(result.violations)


def command(job: Job) -> str:
    """What replays it."""
    words = [f"--seeds {job.seed}", f"--replication-factor {job.replication_factor}"]
    if job.without:
        words.append(f"--without {','.join(map(str, job.without))}")
    if job.plant:
        words.append(f"--plant {job.plant}")
    return f'make simulate ARGS="{" ".join(words)}"'


def show_failure(result: Result, *, shrinks: bool) -> None:
    """Why, and how it is seen again."""
    job = result.job
    print(f"\nseed {job.seed} with {job.replication_factor} FAILED")
    for violation in result.violations:
        print(f"  {violation}")
    print(f"  {command(job)}", flush=True)
    if shrinks:
        count = len(result.faults) + len(job.without)
        job = job._replace(without=fewest_faults(job, count), trace="")
        result = run_job(job)
        print(f"  with {len(result.faults)} of its faults, where it says: {result.violations[0]}")
        print(f"  {command(job)}")
    print("  faults, by the numbers that --without has for them:")
    numbers = (number for number in itertools.count() if number not in job.without)
    for number, fault in zip(numbers, result.faults, strict=False):
        print(f"    {number}: {fault}")
    for line in result.tail:
        print(f"    | {line[:240]}")
    sys.stdout.flush()


def run_all(jobs: list[Job], processes: int) -> Iterator[Result]:
    if processes == 1 or len(jobs) == 1:
        yield from map(run_job, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run_job, jobs)


def numbers(text: str) -> list[int]:
    """`3`, `0-99`, `1,5,7-9`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """What is asked for; of each seed all of its runs before the next one's."""
    factors = FACTORS if options.replication_factor is None else (options.replication_factor,)
    if options.plant and options.replication_factor is None:
        factors = (PLANTED[options.plant].replication_factor,)
    return [
        Job(seed, factor, tuple(options.without), options.plant, options.trace)
        for seed in options.seeds
        for factor in factors
    ]


def summary(results: list[Result], seconds: float) -> str:
    """All runs in a few words."""
    failed = sum(1 for each in results if each.violations)
    costs = []
    for factor in sorted({each.job.replication_factor for each in results}):
        took = [each.real_seconds for each in results if each.job.replication_factor == factor]
        costs.append(f"{sum(took) / len(took):.2f} s of a core for each with {factor}")
    return (
        f"{len(results)} runs, {failed} failed; {sum(each.sent for each in results)} records sent, "
        f"{sum(each.acknowledged for each in results)} acknowledged, {sum(each.read for each in results)} read, "
        f"{sum(each.cleanings for each in results)} logs compacted; "
        f"{sum(each.virtual_seconds for each in results):.0f} virtual seconds in {seconds:.1f} s, {', '.join(costs)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=numbers, default="0-99", help="which seeds: 7, 0-99, or 1,5,7-9")
    parser.add_argument(
        "--replication-factor",
        type=int,
        help="replicas of each partition; else a run with one, and one with three",
    )
    parser.add_argument("--without", type=numbers, default="", help="numbers of faults that are left out")
    parser.add_argument(
        "--plant",
        default="",
        choices=["", *PLANTED],
        metavar="FAULT",
        help="one that is planted into the code: see planted_faults.py",
    )
    parser.add_argument("--trace", default="", help="a file for all that happened, in one run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many runs that fail")
    parser.add_argument(
        "--shrink",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=f"find the faults that a failing run needs, of the first {SHRUNK_MAX}",
    )
    options = parser.parse_args()
    jobs = jobs_of(options)
    if len(jobs) > 1 and (options.trace or options.without):
        parser.error("--trace and --without are about one run: say one seed, and --replication-factor")
    began = time.monotonic()
    failed, results = 0, []
    for result in run_all(jobs, options.processes):
        results.append(result)
        if result.violations:
            failed += 1
            show_failure(result, shrinks=options.shrink and failed <= SHRUNK_MAX)
            if failed >= options.failures:
                break
    print(summary(results, time.monotonic() - began))
    if len(results) == 1:
        print(f"trace {results[0].digest}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
