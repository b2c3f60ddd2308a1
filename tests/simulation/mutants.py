"""Looks for every planted fault: which seeds find it, and whether any does.

    make simulate-mutants                                           all of them, with up to 500 seeds each
    make simulate-mutants ARGS="--seeds 0-99 --seconds 600"         with fewer seeds, and no more than ten minutes
    make simulate-mutants ARGS="--plant skip-crc-on-recovery"       one of them, or some, with commas

All begin with the first seed, and those not found go on with the next: what is easily found is soon out of the way.
A seed that finds a fault is run without it, too, and has to be well. It exits with 1 when a fault is not found: then
the simulation has a hole, or nobody needs the code that the fault is planted into.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from barnabas.kernel.service import prepare_imports

prepare_imports()

from planted_faults import PLANTED  # noqa: E402
from run import Job, Result, numbers, run_job  # noqa: E402

AHEAD: Final = 2
"""Jobs that are given out for each process, so that none waits for another."""

TOLD: Final = 90
"""Characters of what was seen that are shown."""


@dataclass(slots=True)
class Search:
    """What is known of one planted fault so far."""

    name: str
    tried: set[int] = field(default_factory=set)
    found: dict[int, str] = field(default_factory=dict)
    """What the seeds that found it saw."""

    @property
    def seed(self) -> int:
        return min(self.found)

    def job(self, seed: int) -> Job:
        return Job(seed, PLANTED[self.name].replication_factor, (), self.name, "")

    def on_result(self, result: Result) -> None:
        self.tried.add(result.job.seed)
        plant = PLANTED[self.name]
        if plant.is_found_by(result.violations):
            self.found[result.job.seed] = next(
                each for each in result.violations if plant.is_found_by([each])
            )

    def row(self, seeds: list[int]) -> str:
        if not self.found:
            return f"{self.name:<40} NOT FOUND after {len(self.tried)}"
        after = sum(1 for seed in seeds[: seeds.index(self.seed) + 1] if seed in self.tried)
        return f"{self.name:<40} seed {self.seed:>4} after {after:>4}   {self.found[self.seed][:TOLD]}"


def jobs_of(searches: list[Search], seeds: list[int], ends_at: float) -> Iterator[tuple[Search, Job]]:
    """One seed after the other, each with all that is not found by then."""
    for seed in seeds:
        for search in searches:
            if time.monotonic() > ends_at:
                return
            if not search.found:
                yield search, search.job(seed)


def search_all(
    searches: list[Search], seeds: list[int], pool: ProcessPoolExecutor, processes: int, ends_at: float
) -> None:
    """Run what is needed; tells of each fault when it is found."""
    jobs = jobs_of(searches, seeds, ends_at)
    running: dict[Future[Result], Search] = {}
    while True:
        while len(running) < AHEAD * processes and (given := next(jobs, None)) is not None:
            search, job = given
            running[pool.submit(run_job, job)] = search
        if not running:
            return
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            search = running.pop(done)
            was_found = bool(search.found)
            search.on_result(done.result())
            if search.found and not was_found:
                print(f"  {search.row(seeds)}", flush=True)


def unwell_without(searches: list[Search], pool: ProcessPoolExecutor) -> list[Job]:
    """The seeds that fail without the fault as well: what they found was something else."""
    jobs = list(dict.fromkeys(each.job(each.seed)._replace(plant="") for each in searches if each.found))
    return [job for job, result in zip(jobs, pool.map(run_job, jobs), strict=True) if result.violations]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=numbers, default="0-499", help="which seeds at most: 0-99, or 1,5,7-9"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no seed after that long")
    parser.add_argument("--plant", default="", help="only these faults, with commas")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args()
    names = options.plant.split(",") if options.plant else list(PLANTED)
    unknown = [name for name in names if name not in PLANTED]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(PLANTED)}")
    seeds, searches = options.seeds, [Search(name) for name in names]
    began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        search_all(searches, seeds, pool, options.processes, began + options.seconds)
        unwell = unwell_without(searches, pool)
    print(f"\n{'fault':<40} found")
    for search in searches:
        print(search.row(seeds))
    found = sum(1 for search in searches if search.found)
    print(f"{found} of {len(searches)} faults found, in {time.monotonic() - began:.0f} s")
    for job in unwell:
        print(
            f'seed {job.seed} fails without a fault: make simulate ARGS="--seeds {job.seed} '
            f'--replication-factor {job.replication_factor}"'
        )
    sys.exit(found < len(searches) or bool(unwell))


if __name__ == "__main__":
    main()
