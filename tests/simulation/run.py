"""Runs seeds of the simulation.

    make simulate ARGS="--seeds 0-99"                            a hundred seeds, on all cores
    make simulate ARGS="--seeds 7 --trace build/7.txt"           one of them, with all that happened
    make simulate ARGS="--seeds 7 --without 0,2"                 without some of its faults
    make simulate ARGS="--seeds 0-99 --replication-factor 3"     topics with three replicas each
    make simulate ARGS="--seeds 0-99 --plant skip-data-sync"     with a fault planted into the code

It exits with 1 when a seed fails, and says with which command that is seen again.
"""

from __future__ import annotations

import argparse
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
from simulated_cluster import Outcome, run_seed  # noqa: E402

LINES_SHOWN: Final = 40


class Job(NamedTuple):
    """What one process is to do."""

    seed: int
    replication_factor: int
    without: tuple[int, ...]
    plant: str
    trace: str


class Result(NamedTuple):
    """What is told of a seed."""

    seed: int
    violations: tuple[str, ...]
    faults: tuple[str, ...]
    tail: tuple[str, ...]
    digest: str
    virtual_seconds: float
    real_seconds: float
    sent: int
    acknowledged: int
    read: int


def run_job(job: Job) -> Result:
    """One seed, in whichever process."""
    with planted(job.plant):
        outcome = run_seed(job.seed, job.replication_factor, without=job.without, keeps_trace=bool(job.trace))
    if job.trace:
        Path(job.trace).write_text("\n".join(outcome.trace.lines) + "\n")
    return Result(
        outcome.seed,
        outcome.violations,
        tuple(map(str, outcome.plan.faults)),
        tuple(outcome.trace.lines)[-LINES_SHOWN:] if outcome.violations else (),
        outcome.trace.digest,
        outcome.virtual_seconds,
        outcome.real_seconds,
        outcome.sent,
        outcome.acknowledged,
        outcome.read,
    )


def fewest_faults(job: Job) -> tuple[int, ...]:
    """The faults that a failing seed can do without, found by leaving out one after the other."""
    without = list(job.without)
    count = len(run_seed_quietly(job).plan.faults) + len(without)
    for number in range(count):
        if number not in without and run_seed_quietly(job._replace(without=(*without, number))).violations:
            without.append(number)
    return tuple(sorted(without))


def run_seed_quietly(job: Job) -> Outcome:
    with planted(job.plant):
        return run_seed(job.seed, job.replication_factor, without=job.without)


def command(job: Job) -> str:
    """What replays it."""
    words = [f"--seeds {job.seed}"]
    if job.replication_factor != 1:
        words.append(f"--replication-factor {job.replication_factor}")
    if job.without:
        words.append(f"--without {','.join(map(str, job.without))}")
    if job.plant:
        words.append(f"--plant {job.plant}")
    return f'make simulate ARGS="{" ".join(words)}"'


def show_failure(job: Job, result: Result, *, shrinks: bool) -> None:
    """Why, and how it is seen again."""
    print(f"\nseed {result.seed} FAILED")
    for violation in result.violations:
        print(f"  {violation}")
    print(f"  {command(job)}")
    if shrinks:
        shrunk = job._replace(without=fewest_faults(job), trace="")
        result = run_job(shrunk)
        print(f"  {command(shrunk)}")
    print("  faults:")
    for fault in result.faults:
        print(f"    {fault}")
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=numbers, default="0-99", help="which seeds: 7, 0-99, or 1,5,7-9")
    parser.add_argument("--replication-factor", type=int, default=1, help="replicas of each partition")
    parser.add_argument("--without", type=numbers, default="", help="numbers of faults that are left out")
    parser.add_argument(
        "--plant",
        default="",
        choices=["", *PLANTED],
        metavar="FAULT",
        help="one that is planted into the code: see planted_faults.py",
    )
    parser.add_argument("--trace", default="", help="a file for all that happened, of one seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many seeds that fail")
    parser.add_argument("--shrink", action="store_true", help="find the faults that a failing seed needs")
    options = parser.parse_args()
    jobs = [
        Job(seed, options.replication_factor, tuple(options.without), options.plant, options.trace)
        for seed in options.seeds
    ]
    by_seed = {job.seed: job for job in jobs}
    began = time.monotonic()
    failed, results = [], []
    for result in run_all(jobs, options.processes):
        results.append(result)
        if result.violations:
            failed.append(result)
            show_failure(by_seed[result.seed], result, shrinks=options.shrink)
            if len(failed) >= options.failures:
                break
    seconds = time.monotonic() - began
    print(
        f"{len(results)} seeds, {len(failed)} failed; {sum(each.sent for each in results)} records sent, "
        f"{sum(each.acknowledged for each in results)} acknowledged, {sum(each.read for each in results)} read; "
        f"{sum(each.virtual_seconds for each in results):.0f} virtual seconds in {seconds:.1f} s, "
        f"{sum(each.real_seconds for each in results) / len(results):.2f} s of a core for each seed"
    )
    if len(results) == 1:
        print(f"trace {results[0].digest}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
