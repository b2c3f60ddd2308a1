"""Reassignments (KIP-455): what is under way, beginning and giving up some; elections of preferred leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.balance.cluster_state import Place, Reassignment
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.requests import (
    ALTER_PARTITION_REASSIGNMENTS,
    ANSWER_TIME,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    check,
    nested,
)
from barnabas.kernel.errors import ErrorCode

PORTION_PARTITIONS: Final = 500
"""Partitions a request names at most."""

PREFERRED: Final = 0


@dataclass(frozen=True, slots=True)
class Reassigning:
    """A reassignment that is under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something was not done for one partition."""

    code: ErrorCode
    message: str

    def __str__(self) -> str:
        return self.message or self.code.name.upper()


def list_reassigning(administration: Administration) -> dict[Place, Reassigning]:
    """Every partition that is being reassigned."""
    answer = administration.ask(
        LIST_PARTITION_REASSIGNMENTS, 0, lambda schema: schema(timeout=ANSWER_TIME, topics=None)
    )
    check(answer.error_code, "cannot list the reassignments", answer.error_message)
    return {
        (str(topic.name), int(part.partition_index)): Reassigning(
            tuple(map(int, part.replicas)),
            tuple(map(int, part.adding_replicas)),
            tuple(map(int, part.removing_replicas)),
        )
        for topic in answer.topics
        for part in topic.partitions
    }


def begin_reassignments(
    administration: Administration, reassignments: Iterable[Reassignment]
) -> dict[Place, Problem]:
    """Begin these reassignments; what was refused, with the reason."""
    return _alter(administration, {reassignment.place: reassignment.after for reassignment in reassignments})


def cancel_reassignments(administration: Administration, places: Iterable[Place]) -> dict[Place, Problem]:
    """Give these reassignments up: the partitions keep what they had; what was refused, with the reason."""
    return _alter(administration, dict.fromkeys(places))


def elect_preferred(administration: Administration, places: Iterable[Place]) -> dict[Place, Problem]:
    """Have the preferred replicas lead; where that was not done, the reason. Those that lead already are none."""
    problems: dict[Place, Problem] = {}
    for portion in _portions(places):

        def make(schema: Any, portion: Sequence[Place] = portion) -> Any:
            topic = nested(schema, "topic_partitions")
            wanted = tuple(
                topic(topic=name, partitions=tuple(numbers)) for name, numbers in by_topic(portion).items()
            )
            return schema(election_type=PREFERRED, topic_partitions=wanted, timeout=ANSWER_TIME)

        answer = administration.ask(ELECT_LEADERS, 2, make)
        check(answer.error_code, "cannot elect leaders")
        for topic in answer.replica_election_results:
            for part in topic.partition_result:
                code = ErrorCode(int(part.error_code))
                if code not in (ErrorCode.none, ErrorCode.election_not_needed):
                    place = (str(topic.topic), int(part.partition_id))
                    problems[place] = Problem(code, part.error_message or "")
    return problems


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Topic to numbers of partitions."""
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found


def _portions(places: Iterable[Place]) -> Iterator[list[Place]]:
    ordered = sorted(places)
    for start in range(0, len(ordered), PORTION_PARTITIONS):
        yield ordered[start : start + PORTION_PARTITIONS]


def _alter(
    administration: Administration, targets: Mapping[Place, tuple[int, ...] | None]
) -> dict[Place, Problem]:
    problems: dict[Place, Problem] = {}
    for portion in _portions(targets):

        def make(schema: Any, portion: Sequence[Place] = portion) -> Any:
            topic = nested(schema, "topics")
            part = nested(topic, "partitions")
            return schema(
                timeout=ANSWER_TIME,
                topics=tuple(
                    topic(
                        name=name,
                        partitions=tuple(
                            part(partition_index=number, replicas=targets[name, number]) for number in numbers
                        ),
                    )
                    for name, numbers in by_topic(portion).items()
                ),
            )

        answer = administration.ask(ALTER_PARTITION_REASSIGNMENTS, 0, make)
        whole = ErrorCode(int(answer.error_code))
        if whole is not ErrorCode.none:
            problems |= dict.fromkeys(portion, Problem(whole, answer.error_message or ""))
            continue
        for topic in answer.responses:
            for part in topic.partitions:
                code = ErrorCode(int(part.error_code))
                if code is not ErrorCode.none:
                    place = (str(topic.name), int(part.partition_index))
                    problems[place] = Problem(code, part.error_message or "")
    return problems
