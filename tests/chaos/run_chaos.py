"""Does faults to clusters of real processes under real clients.

    make chaos ARGS="--faults 1000"                      in rounds of 50, each with a cluster of its own
    make chaos ARGS="--faults 50 --seed 7"               one round: the same faults in the same order
    make chaos ARGS="--faults 50 --form separate"        gateways, coordinators and nodes as processes of their own
    make chaos ARGS="--faults 50 --protocol consumer"    groups of KIP-848, else by turns these and classic ones
    make chaos ARGS="--faults 50 --kind 'rolling restart' --kind 'start other processes'"
                                                         none but these
    make chaos ARGS="--faults 1000 --docs"               and what they came to, into docs/durability.md

It exits with 1 when a promise was broken, and says by which command the same faults are done again. Logs, histories and
the nodes' files are kept then.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Final

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "simulation"), str(HERE.parent / "integration")]

from chaos_plan import FORMS, KINDS_AND_CONTROL, PROTOCOLS, make_plan  # noqa: E402
from chaos_round import Outcome, run_round  # noqa: E402
from chaos_table import describe, write_into_page  # noqa: E402

FOLDER: Final = HERE.parents[1] / "build" / "chaos"
FAULTS_A_ROUND: Final = 50


def form_of(seed: int) -> str:
    """Rounds take turns."""
    return FORMS[seed % len(FORMS)]


def protocol_of(seed: int) -> str:
    """Four rounds have each form with each protocol of groups."""
    return list(PROTOCOLS)[seed // len(FORMS) % len(PROTOCOLS)]


def command(seed: int, form: str, protocol: str, count: int, kinds: Collection[str]) -> str:
    """What does the same faults again, as a shell takes it."""
    is_of_all = sorted(kinds) == sorted(KINDS_AND_CONTROL)
    # Neither sort of quote is free: the argument is in one, and make hands what is in it to another shell.
    of_kinds = [] if is_of_all else [" --kind " + re.sub(r"([ '])", r"\\\1", kind) for kind in kinds]
    options = f"--faults {count} --seed {seed} --form {form} --protocol {protocol}{''.join(of_kinds)}"
    return f'make chaos ARGS="{options}"'


def run_seed(
    seed: int, form: str, protocol: str, count: int, kinds: Collection[str] = KINDS_AND_CONTROL
) -> Outcome:
    """One round; what it leaves behind is removed where nothing is wrong."""
    folder = FOLDER / f"{form}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {seed}, {form}, groups of the {protocol} protocol: {count} faults", flush=True)
    outcome = run_round(
        *(seed, form, protocol, make_plan(seed, form, count, kinds), folder),
        say=lambda line: print(line, flush=True),
    )
    if outcome.violations:
        print(f"\nseed {seed} FAILED")
        for violation in outcome.violations[:20]:
            print(f"  {violation}")
        print(f"  {command(seed, form, protocol, count, kinds)}")
        print(f"  what is left of it: {folder}\n", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def stop(number: int, _: FrameType | None) -> None:
    """What the round started ends with it."""
    raise SystemExit(128 + number)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=FAULTS_A_ROUND, help="how many in all")
    parser.add_argument(
        "--seed", type=int, help="of the first round; further ones count on; a fresh one by itself"
    )
    parser.add_argument("--form", choices=FORMS, help="by itself, rounds take turns")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="of the groups; by itself, rounds take turns")
    parser.add_argument(
        "--kind",
        choices=KINDS_AND_CONTROL,
        action="append",
        help="only faults of this kind, and of others named so",
    )
    parser.add_argument("--failures", type=int, default=3, help="stop after so many rounds that fail")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/durability.md")
    options = parser.parse_args()
    if options.docs and options.kind:
        parser.error("the table in docs/durability.md is of all kinds: --docs goes without --kind")
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    began, left, outcomes = time.monotonic(), options.faults, []
    while left > 0 and sum(bool(each.violations) for each in outcomes) < options.failures:
        count = min(left, FAULTS_A_ROUND)
        form, protocol = options.form or form_of(seed), options.protocol or protocol_of(seed)
        outcomes.append(
            run_seed(seed, form, protocol, count, list(dict.fromkeys(options.kind or KINDS_AND_CONTROL)))
        )
        seed, left = seed + 1, left - count
        if options.docs:
            write_into_page(describe(outcomes))
    print(f"\n{describe(outcomes)}\n\n{time.monotonic() - began:.0f} s")
    for outcome in outcomes:
        print(f"seed {outcome.seed}: clients tried again after {outcome.errors}")
    sys.exit(any(outcome.violations for outcome in outcomes))


if __name__ == "__main__":
    main()
