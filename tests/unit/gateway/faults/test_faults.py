"""Fault rules: what they accept, fit and count; and that requests behind a faulted one keep their place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.clients.sequence_gaps import SequenceGaps
from barnabas.gateway.faults.injected_answers import subject_of
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.faults.rule import FaultRefused, FaultRule, Subject, parse_rule, to_document
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.requests import RequestHeader

HEARTBEAT = 12


def request(connection_id: int = 1, *, group: str = "g", client_id: str = "app") -> Any:
    """A Heartbeat as the dispatcher has it."""
    return SimpleNamespace(
        header=RequestHeader(HEARTBEAT, 4, 7, client_id, 0),
        body=SimpleNamespace(group_id=group),
        client=SimpleNamespace(connection_id=connection_id, gaps=SequenceGaps()),
        image=SimpleNamespace(topics_by_id={}),
        parts=SimpleNamespace(fetch_sessions=FetchSessions(1, None)),  # type: ignore[arg-type]
        get=lambda _name, default: default,
    )


async def done() -> Pieces:
    return b"done"


def faults_with(**document: Any) -> Faults:
    faults = Faults()
    faults.replace([parse_rule({"fault_id": 1, "apis": [], **document})])
    return faults


@given(
    st.builds(
        FaultRule,
        st.integers(1, 9),
        st.lists(st.sampled_from(["Produce", "Fetch"]), max_size=2).map(tuple),
        topic=st.sampled_from(["", "a*"]),
        drop=st.just(True),
        after=st.booleans(),
        delay_seconds=st.floats(0, 10),
        times=st.integers(0, 3),
        probability=st.floats(0.1, 1),
        seed=st.integers(0, 9),
    )
)
def test_a_rule_survives_its_document(rule: FaultRule) -> None:
    assert parse_rule(json.loads(json.dumps(to_document(rule)))) == rule


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"apis": ["Produse"], "drop": True}, "no API of Kafka's"),
        ({"apis": "Produce", "drop": True}, "expected a list"),
        ({"drop": "yes"}, "expected bool"),
        ({"topics": "a"}, "has no field 'topics'"),
        ({}, "nothing would happen"),
        ({"drop": True, "hang": True}, "give one of"),
        ({"error": "NONE"}, "is no error"),
        ({"error": "12345"}, "no error code"),
        ({"delay_seconds": -1.0}, "expected 0 to"),
        ({"drop": True, "probability": 0.0}, "expected more than 0"),
        ({"drop": True, "times": -1}, "expected 1 or more"),
    ],
)
def test_rules_that_make_no_sense_are_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(FaultRefused, match=reason):
        parse_rule({"fault_id": 1, "apis": [], **document})


@pytest.mark.parametrize("name", ["produce", "PRODUCE", "Produce"])
def test_names_are_taken_in_any_case_and_codes_as_numbers(name: str) -> None:
    rule = parse_rule({"fault_id": 1, "apis": [name], "error": 6})
    assert rule.apis == ("Produce",)
    assert rule.error_code is ErrorCode.not_leader_or_follower


def test_what_a_rule_fits() -> None:
    subject = Subject("Fetch", "app-1", {"orders", "other"}, {"g"})
    fitting: list[dict[str, Any]] = [
        {}, {"apis": ("Fetch",)}, {"topic": "ord*"}, {"client_id": "app-?"}, {"group": "g"}, {"spared_client_id": "x*"},
    ]  # fmt: skip
    others: list[dict[str, Any]] = [
        {"apis": ("Produce",)}, {"topic": "ord"}, {"client_id": "app"}, {"group": "h"}, {"spared_client_id": "app*"},
    ]  # fmt: skip
    for fields in fitting:
        assert FaultRule(1, **{"apis": (), **fields}).fits(subject), fields
    for fields in others:
        assert not FaultRule(1, **{"apis": (), **fields}).fits(subject), fields


def test_a_subject_names_client_and_groups() -> None:
    assert subject_of(request()) == Subject("Heartbeat", "app", frozenset(), frozenset({"g"}))


async def test_hits_are_counted_over_all_gateways(tmp_path: Path) -> None:
    document = {"drop": True, "times": 3, "tally": str(tmp_path / "tally")}
    gateways = [faults_with(**document), faults_with(**document)]
    answers = [
        await asyncio.gather(gateways[number % 2].serve(request(number), done), return_exceptions=True)
        for number in range(5)
    ]
    assert [isinstance(answer, CloseConnection) for (answer,) in answers] == [True] * 3 + [False] * 2
    assert Path(document["tally"]).stat().st_size >= 3
    for gateway in gateways:
        gateway.replace([])


async def test_without_rules_requests_do_not_come_by() -> None:
    faults = faults_with(drop=True)
    assert faults.is_active
    faults.replace([])
    assert not faults.is_active
    assert await faults.serve(request(), done) == b"done"


async def test_the_same_seed_chooses_alike() -> None:
    def chosen(answers: list[Any]) -> list[bool]:
        return [isinstance(answer, CloseConnection) for answer in answers]

    runs = []
    for _ in range(2):
        faults = faults_with(drop=True, probability=0.5, seed=3)
        runs.append(
            chosen(
                [
                    *await asyncio.gather(
                        *(faults.serve(request(n), done) for n in range(30)), return_exceptions=True
                    )
                ]
            )
        )
        faults.replace([])
    assert runs[0] == runs[1]
    assert {True, False} == set(runs[0])


async def test_a_hanging_request_is_let_go_when_its_rule_is_removed() -> None:
    faults = faults_with(hang=True, group="g")
    held = asyncio.create_task(faults.serve(request(1), done))
    behind = asyncio.create_task(faults.serve(request(1, group="h"), done))
    await asyncio.sleep(0)  # both are on their way now
    assert await faults.serve(request(2, group="h"), done) == b"done"
    assert not held.done()
    faults.replace([])
    with pytest.raises(CloseConnection):
        await held
    with pytest.raises(CloseConnection):
        await behind
    assert not faults.is_active


async def test_the_rules_of_a_file_and_of_http(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    faults = Faults()
    faults.load(str(path))
    assert not faults.is_active
    path.write_text(json.dumps([to_document(FaultRule(1, (), drop=True))]))
    faults.load(str(path))
    assert faults.is_active
    assert (await faults.answer_http("PUT", b"[{}]"))[0] == 400
    assert (await faults.answer_http("PUT", b"nonsense"))[0] == 400
    assert (await faults.answer_http("GET", b""))[0] == 405
    assert await faults.answer_http("PUT", b"[]") == (200, b"ok\n")
    assert not faults.is_active


def produce(sequence: int, producer_id: int = 5) -> Any:
    records = bytearray(61)
    records[43:51] = producer_id.to_bytes(8, "big", signed=True)
    records[53:57] = sequence.to_bytes(4, "big", signed=True)
    partition = SimpleNamespace(index=0, records=bytes(records))
    return SimpleNamespace(topic_data=[SimpleNamespace(name="t", partition_data=[partition])])


async def test_what_a_fault_refused_is_remembered_by_the_connection_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its gap lasts as long as the connection does: whether requests have to come by here rests on the rules."""
    monkeypatch.setattr("barnabas.gateway.faults.injection.fault_answer", lambda _, code: code.name.encode())
    faults = faults_with(error="NOT_LEADER_OR_FOLLOWER", times=1)
    client = request().client

    def asked(sequence: int) -> Any:
        body, times = produce(sequence), SimpleNamespace(count_error=lambda _: None)
        header = RequestHeader(0, 9, 7, "app", 0)
        return SimpleNamespace(
            **vars(request()) | {"header": header, "body": body, "client": client, "times": times}
        )

    assert [await faults.serve(asked(sequence), done) for sequence in (3, 4)] == [
        b"not_leader_or_follower"
    ] * 2
    faults.replace([])
    assert not faults.is_active
    assert client.gaps, "the handler refuses what is behind it"
    assert await faults.serve(asked(3), done) == b"done"
    assert not client.gaps


async def test_what_a_producer_sent_behind_a_refused_batch_is_refused_until_it_comes_again() -> None:
    gaps = SequenceGaps()
    gaps.open(produce(3), ErrorCode.not_leader_or_follower)
    assert gaps.is_behind(produce(4))
    assert not gaps.is_behind(produce(4, producer_id=6))
    assert not gaps.is_behind(produce(3))
    assert not gaps
    assert not gaps.is_behind(produce(4))
    gaps.open(produce(0, producer_id=-1), ErrorCode.not_leader_or_follower)
    assert not gaps


async def test_a_gap_is_forgotten_when_whoever_sends_behind_it_knows_of_it() -> None:
    gaps = SequenceGaps()
    gaps.open(produce(3), ErrorCode.not_leader_or_follower)
    assert [gaps.is_behind(produce(4 + sent)) for sent in range(6)] == [True] * 5 + [False]
