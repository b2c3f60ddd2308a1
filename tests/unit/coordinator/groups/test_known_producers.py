"""What is known of producers: the same as the log's leader knows, so that it refuses nothing that is decided here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.known_producers import KnownProducers
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import PRODUCER_EPOCH_MAX
from barnabas.log.producers.producer_state import ProducerState
from barnabas.records.batch import BatchHeader, parse_header
from barnabas.records.control import EndTransactionMarker, encode_marker
from barnabas.records.record import encode_batch

producers = st.builds(Producer, st.integers(1, 2), st.integers(0, 3))
records = st.tuples(st.just("record"), producers)
markers = st.tuples(st.just("marker"), producers, st.integers(0, 2))
P = Producer(7, 3)


def data(producer: Producer) -> BatchHeader:
    return parse_header(
        encode_batch(
            [(1, b"k", b"v", ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
    )


def control(producer: Producer, coordinator_epoch: int) -> BatchHeader:
    return parse_header(
        encode_marker(
            committed=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=1,
        )
    )


@given(st.lists(records | markers | st.just("load anew"), max_size=30))
def test_what_the_log_refuses_is_refused_here_with_the_same_code(steps: list[object]) -> None:
    known, leader = KnownProducers(), ProducerState()
    for step in steps:
        match step:
            case "record", Producer() as producer:
                header = data(producer)
                code = code_of(partial(leader.check, header, check_sequence=False))
                assert known.verdict_on_epoch(producer) is code
                if code is ErrorCode.none:
                    leader.replay(header, leader.end_offset, 1)
                    known.replay_record(producer)
                    assert known.is_open(producer)
            case "marker", Producer() as producer, int(epoch):
                header, marker = control(producer, epoch), EndTransactionMarker(True, epoch, 1)
                code = code_of(partial(leader.check_marker, header, marker))
                assert known.verdict_on_marker(producer, epoch, 0) is code
                if code is ErrorCode.none:
                    leader.replay_marker(header, marker, leader.end_offset)
                    known.replay_marker(producer, epoch)
                    assert not known.is_open(producer)
            case _:
                known = KnownProducers()
                known.restore(known_by(leader))
        assert known.open_count == sum(each.is_open for each in known_by(leader))


def code_of(check: Callable[[], None]) -> ErrorCode:
    try:
        check()
    except KafkaError as refused:
        return refused.code
    return ErrorCode.none


def known_by(leader: ProducerState) -> list[LogProducer]:
    return [
        LogProducer(
            Producer(entry.producer_id, entry.producer_epoch),
            entry.coordinator_epoch,
            is_open=entry.current_transaction_first_offset >= 0,
        )
        for entry in leader.producers.values()
    ]


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "code"),
    [
        (0, True, 2, "invalid_producer_epoch"),
        (0, True, 3, "none"),
        (0, True, 4, "none"),
        (0, False, 3, "none"),
        (2, True, 2, "invalid_producer_epoch"),
        (2, True, 3, "invalid_producer_epoch"),  # of the transaction before: KAFKA-19446
        (2, True, 4, "none"),
        (2, False, 2, "invalid_producer_epoch"),
        (2, False, 3, "none"),  # its answer was lost: KAFKA-19999
    ],
)
def test_which_markers_are_refused(version: int, is_open: bool, epoch: int, code: str) -> None:
    known = KnownProducers()
    known.restore([LogProducer(P, 5, is_open)])
    assert known.verdict_on_marker(Producer(7, epoch), 5, version).name == code


def test_the_last_epoch_of_all_is_ended_under_its_own_number() -> None:
    known = KnownProducers()
    known.restore([LogProducer(Producer(7, PRODUCER_EPOCH_MAX), 5, is_open=True)])
    assert known.verdict_on_marker(Producer(7, PRODUCER_EPOCH_MAX), 5, 2) is ErrorCode.none


def test_a_deposed_transaction_coordinator_is_fenced() -> None:
    known = KnownProducers()
    known.restore([LogProducer(P, 5, is_open=True)])
    assert known.verdict_on_marker(Producer(7, 4), 4, 2) is ErrorCode.transaction_coordinator_fenced
    assert known.verdict_on_marker(Producer(7, 4), 6, 2) is ErrorCode.none


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [(0, 3, "invalid_txn_state"), (2, 4, "invalid_producer_epoch"), (2, 3, "none")],
)
def test_a_marker_after_the_question(version: int, epoch: int, code: str) -> None:
    """Under version 2 the epoch that a marker brings is that of the next transaction, which the question is about."""
    known = KnownProducers()
    question, others = known.ask(P), known.ask(Producer(8, 3))
    assert known.verdict(question) is ErrorCode.none
    known.on_marker(Producer(7, epoch), version)
    known.replay_marker(Producer(7, epoch), 0)
    assert known.verdict(question).name == code
    assert known.verdict(others) is ErrorCode.none


def test_a_question_does_not_stand_again_when_the_next_transaction_is_open() -> None:
    known = KnownProducers()
    question = known.ask(P)
    known.on_marker(P, 0)
    known.replay_marker(P, 0)
    known.replay_record(P)
    assert known.is_open(P)
    assert known.verdict(question) is ErrorCode.invalid_txn_state
    known.on_marker(P, 2)
    assert known.verdict(question) is ErrorCode.invalid_txn_state


def test_a_question_from_before_a_reload_decides_nothing() -> None:
    before, after = KnownProducers(), KnownProducers()
    question = before.ask(P)
    after.restore([LogProducer(P, 0, is_open=True)])
    assert after.verdict(question) is ErrorCode.coordinator_load_in_progress
    after.on_marker(P, 0)
    after.forget(question)
    before.forget(question)
    before.forget(question)


def test_no_more_transactions_are_open_than_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_PRODUCERS_MAX", 2)
    known = KnownProducers()
    for producer_id in (1, 2):
        known.replay_record(Producer(producer_id, 0))
    assert known.verdict(known.ask(Producer(3, 0))) is ErrorCode.coordinator_load_in_progress
    assert known.verdict(known.ask(Producer(2, 0))) is ErrorCode.none
    known.replay_marker(Producer(1, 0), 0)
    assert known.verdict(known.ask(Producer(3, 0))) is ErrorCode.none


def test_of_too_many_the_one_that_was_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KNOWN_PRODUCERS_MAX", 3)
    known = KnownProducers()
    known.replay_record(Producer(1, 5))  # open: never
    for producer_id in (2, 3):
        known.replay_marker(Producer(producer_id, 5), 0)
    known.replay_marker(Producer(2, 5), 0)
    known.replay_marker(Producer(4, 5), 0)
    refused = [
        number for number in (1, 2, 3, 4) if known.verdict_on_epoch(Producer(number, 0)) is not ErrorCode.none
    ]
    assert refused == [1, 2, 4]
