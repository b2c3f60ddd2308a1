"""What must hold of a replica's log: what clients were told is there, in order, once, and replicas agree.

Of a simulated cluster's logs and of a real one's (`tests/chaos`).
"""

from __future__ import annotations

from collections.abc import Mapping

from history import History, Judge, Place

Log = dict[int, tuple[bytes, int]]
"""Value and leader epoch, by offset."""


def check_log(
    judge: Judge,
    history: History,
    place: Place,
    log: Log,
    described: str,
    *,
    is_one_enough: bool,
    start: int = 0,
) -> None:
    """Hold what clients were told against the log of one in-sync replica, `described` for whoever reads of it.

    It begins at `start`: what was before is deleted.
    """
    if not history.first_possible(place) <= start <= history.may_be_deleted(place):
        judge.violate(
            f"{described} begins at {start}; deleted are the records before {history.first_possible(place)} at least, "
            f"and before {history.may_be_deleted(place)} at most"
        )
    gone = _deleted_values(history, place, start)
    values = {value: offset for offset, (value, _) in log.items()}
    for offset, promise in history.promised(place, is_one_enough=is_one_enough).items():
        found = log.get(offset)
        if offset < start:
            continue
        if found is None or found[0] != promise.value:
            judge.violate(
                f"LOST: {promise.producer} was told that {promise.value!r} is at {offset} (acks={promise.acks}); "
                f"{described} has {found and found[0]!r} there, and it {_place_of(promise.value, values)}"
            )
    for value, producer in history.landed.get(place, {}).items():
        if value not in values and value not in gone:
            judge.violate(f"LOST: {value!r} of {producer} was acknowledged and is not in {described}")
    for offset, value in history.read.get(place, {}).items():
        if offset >= start and (offset not in log or log[offset][0] != value):
            judge.violate(f"READ AND LOST: {value!r} was read at {offset}, {described} has {log.get(offset)}")
    _check_order(judge, described, log, is_whole=not start)
    strangers = {value.split(b":")[0].decode() for value, _ in log.values()} - history.senders
    if strangers:
        judge.violate(f"{described} has records of {sorted(strangers)}, who sent none there")


def _deleted_values(history: History, place: Place, start: int) -> set[bytes]:
    told = history.acknowledged.get(place, {})
    read = history.read.get(place, {})
    return {promise.value for offset, promise in told.items() if offset < start} | {
        value for offset, value in read.items() if offset < start
    }


def _place_of(value: bytes, values: Mapping[bytes, int]) -> str:
    return f"is at {values[value]}" if value in values else "is nowhere"


def _check_order(judge: Judge, described: str, log: Log, *, is_whole: bool) -> None:
    """Each producer's records in their order; an idempotent one's once, another's perhaps again."""
    last: dict[str, int] = {}
    epoch = -1
    for offset, (value, leader_epoch) in log.items():
        if leader_epoch < epoch:
            judge.violate(f"{described}: leader epoch {leader_epoch} at {offset} follows {epoch}")
        epoch = leader_epoch
        producer, number = value.decode().split(":")[:2]
        before = last.get(producer, -1 if is_whole else int(number) - 1)
        if producer.startswith("idempotent") and int(number) != before + 1:
            what = "DOUBLED" if int(number) <= before else "OUT OF ORDER"
            judge.violate(f"{what}: {described}: {producer} has {number} after {before} at {offset}")
        if producer.startswith("plain") and int(number) > before + 1:
            judge.violate(f"OUT OF ORDER: {described}: {producer} has {number} after {before} at {offset}")
        last[producer] = max(before, int(number))


def check_agreement(judge: Judge, place: Place, logs: Mapping[str, Log], offsets: range) -> None:
    """At these offsets, which are committed and of which nothing was deleted, all have the same."""
    names = list(logs)
    for offset in offsets:
        there = {logs[name].get(offset) for name in names}
        if len(there) > 1:
            judge.violate(f"{place}: {names} differ at {offset}: {there}")
            return
