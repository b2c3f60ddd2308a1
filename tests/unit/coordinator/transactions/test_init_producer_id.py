"""InitProducerId: every state and every epoch that a client may say it has."""

from __future__ import annotations

import pytest
from transaction_driver import (
    ID,
    NEW_PRODUCER,
    PRODUCER,
    TIMEOUT_MS,
    TransactionDriver,
    a_transaction,
    partitions,
)

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.init_producer_id import check_init_producer_id
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.states import COMPLETED, PREPARED, TransactionState
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import InitProducerIdRequest

AT_REST = [TransactionState.EMPTY, *sorted(COMPLETED)]
"""States in which nothing is open."""


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


@pytest.mark.parametrize(
    ("producer_id", "epoch", "name", "timeout", "code"),
    [
        (-1, -1, ID, 1, None),
        (-1, -1, ID, 900_000, None),
        (7, 0, ID, 1, None),
        (7, -1, ID, 1, ErrorCode.invalid_request),
        (-1, 0, ID, 1, ErrorCode.invalid_request),
        (-1, -1, "", 1, ErrorCode.invalid_request),
        (-1, -1, "", 0, ErrorCode.invalid_request),
        (-1, -1, "é" * 16_383, 1, None),
        (-1, -1, "é" * 16_384, 1, ErrorCode.invalid_request),
        (-1, -1, ID, 0, ErrorCode.invalid_transaction_timeout),
        (-1, -1, ID, -1, ErrorCode.invalid_transaction_timeout),
        (-1, -1, ID, 900_001, ErrorCode.invalid_transaction_timeout),
    ],
)
def test_what_is_checked_before_anything_else(
    producer_id: int, epoch: int, name: str, timeout: int, code: ErrorCode | None
) -> None:
    request = InitProducerIdRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, transaction_timeout_ms=timeout
    )
    said = None
    try:
        check_init_producer_id(request, TransactionSettings())
    except KafkaError as error:
        said = error.code
    assert said == code


def test_an_id_that_nobody_knew_gets_a_producer_id(driver: TransactionDriver) -> None:
    assert driver.init() == f"{NEW_PRODUCER}/0"
    assert driver.init(name="orders") == f"{NEW_PRODUCER + 1}/0"
    transaction = driver.now()
    assert transaction.state is TransactionState.EMPTY
    assert transaction.timeout_ms == TIMEOUT_MS
    assert transaction.start_ms == -1
    assert transaction.last_update_ms == driver.clock.now_ms()
    assert transaction.previous_producer_id == NEW_PRODUCER


def test_an_id_that_nobody_knows_any_more_is_new_whatever_its_client_has(driver: TransactionDriver) -> None:
    assert driver.init(PRODUCER, 5) == f"{NEW_PRODUCER}/0"


def test_each_time_fences_the_one_before(driver: TransactionDriver) -> None:
    assert driver.init() == f"{NEW_PRODUCER}/0"
    assert driver.init() == f"{NEW_PRODUCER}/1"
    assert driver.add(producer_id=NEW_PRODUCER, epoch=0) == "PRODUCER_FENCED"
    assert driver.end("commit", producer_id=NEW_PRODUCER, epoch=0) == "PRODUCER_FENCED"


EXHAUSTED = 32_766
CELLS = [
    # stored epoch, last epoch, the client's producer id and epoch, the answer, last epoch afterwards
    (5, -1, -1, -1, f"{PRODUCER}/6", -1),
    (5, 4, -1, -1, f"{PRODUCER}/6", -1),
    (5, -1, PRODUCER, 5, f"{PRODUCER}/6", 5),
    (5, 4, PRODUCER, 4, f"{PRODUCER}/5", 4),
    (5, 4, PRODUCER, 3, "PRODUCER_FENCED", None),
    (5, 4, PRODUCER, 6, "PRODUCER_FENCED", None),
    (5, -1, PRODUCER, 4, "PRODUCER_FENCED", None),
    (5, -1, PRODUCER + 1, 5, "PRODUCER_FENCED", None),
    (EXHAUSTED - 1, -1, -1, -1, f"{PRODUCER}/{EXHAUSTED}", -1),
    (EXHAUSTED, -1, -1, -1, f"{NEW_PRODUCER}/0", -1),
    (EXHAUSTED, -1, PRODUCER, EXHAUSTED, f"{NEW_PRODUCER}/0", EXHAUSTED),
    (EXHAUSTED + 1, -1, -1, -1, f"{NEW_PRODUCER}/0", -1),
    (EXHAUSTED + 1, -1, PRODUCER, EXHAUSTED + 1, f"{NEW_PRODUCER}/0", EXHAUSTED + 1),
    (EXHAUSTED, EXHAUSTED - 1, PRODUCER, EXHAUSTED - 1, "UNKNOWN_SERVER_ERROR", None),
    (EXHAUSTED + 1, -1, PRODUCER, EXHAUSTED, "UNKNOWN_SERVER_ERROR", None),
]


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize(("epoch", "last", "its_id", "its_epoch", "answer", "last_after"), CELLS)
def test_nothing_is_open(
    driver: TransactionDriver,
    state: TransactionState,
    epoch: int,
    last: int,
    its_id: int,
    its_epoch: int,
    answer: str,
    last_after: int | None,
) -> None:
    driver.given(a_transaction(state, epoch, last=last))
    assert driver.init(its_id, its_epoch, timeout=1234) == answer
    if last_after is None:
        assert not driver.written()
        return
    after = driver.now()
    assert driver.at() == f"Empty {answer}"
    assert after.last_producer_epoch == last_after
    assert after.timeout_ms == 1234
    assert (after.start_ms, after.partitions, after.next_producer_id) == (-1, frozenset(), -1)
    assert after.previous_producer_id == PRODUCER


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize(("epoch", "last", "its_id", "its_epoch", "answer", "last_after"), CELLS)
def test_nothing_is_open_after_a_reload(
    driver: TransactionDriver,
    state: TransactionState,
    epoch: int,
    last: int,
    its_id: int,
    its_epoch: int,
    answer: str,
    last_after: int | None,
) -> None:
    """The same, but that the log does not have the last epoch: what was sent again looks like somebody else's."""
    driver.given(a_transaction(state, epoch, last=last))
    driver.reload()
    is_again = last_after == last != -1
    assert driver.init(its_id, its_epoch) == ("PRODUCER_FENCED" if is_again else answer)


def test_the_answer_that_gave_a_new_id_was_lost(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.EMPTY, EXHAUSTED))
    driver.init(PRODUCER, EXHAUSTED)
    assert driver.init(PRODUCER, EXHAUSTED) == f"{NEW_PRODUCER}/0"
    assert driver.written(), "as in Kafka, it is written again"


def test_the_answer_that_gave_a_new_id_was_lost_with_the_coordinator(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.EMPTY, EXHAUSTED))
    driver.init(PRODUCER, EXHAUSTED)
    driver.reload()
    assert driver.init(PRODUCER, EXHAUSTED) == "PRODUCER_FENCED"


def test_the_id_before_is_of_no_use_at_other_epochs(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.EMPTY, EXHAUSTED))
    driver.init()
    for epoch in (0, EXHAUSTED - 1):
        assert driver.init(PRODUCER, epoch) == "PRODUCER_FENCED"


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("state", sorted(PREPARED))
@pytest.mark.parametrize(("its_id", "its_epoch"), [(-1, -1), (PRODUCER, 5), (PRODUCER, 4), (PRODUCER + 1, 0)])
def test_partitions_are_still_being_told(
    driver: TransactionDriver, state: TransactionState, its_id: int, its_epoch: int, is_reloaded: bool
) -> None:
    driver.given(a_transaction(state))
    if is_reloaded:
        driver.reload()
    assert driver.init(its_id, its_epoch) == "CONCURRENT_TRANSACTIONS"
    assert not driver.written()


@pytest.mark.parametrize("state", [*AT_REST, TransactionState.ONGOING])
def test_somebody_elses_id_is_fenced(driver: TransactionDriver, state: TransactionState) -> None:
    driver.given(a_transaction(state))
    assert driver.init(PRODUCER + 1, 5) == "PRODUCER_FENCED"
    assert not driver.written()


@pytest.mark.parametrize("its_epoch", [-1, 5, 3])
@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_what_is_open_is_aborted_first(version: int, its_epoch: int, is_reloaded: bool) -> None:
    driver = TransactionDriver(version=version)
    driver.given(a_transaction(TransactionState.ONGOING, version=0))
    if is_reloaded:
        driver.reload()
    mine = (-1, -1) if its_epoch < 0 else (PRODUCER, its_epoch)
    assert driver.init(*mine) == "CONCURRENT_TRANSACTIONS"
    assert driver.at() == f"PrepareAbort {PRODUCER}/6", "the epoch of the markers fences the old client"
    assert driver.now().client_version == (2 if version == 2 else 0)
    assert driver.now().last_producer_epoch == (5 if version == 2 else -1)
    assert driver.init() == "CONCURRENT_TRANSACTIONS"
    (ended,) = driver.mark()
    assert (ended.producer_epoch, ended.committed) == (6, False)
    assert ended.partitions == partitions("t-0")
    assert driver.init() == f"{PRODUCER}/7"


@pytest.mark.parametrize(
    ("version", "epoch", "aborted", "given"),
    [
        (0, 32_765, f"{PRODUCER}/32766", f"{NEW_PRODUCER}/0"),
        (0, 32_766, f"{PRODUCER}/32767", f"{NEW_PRODUCER}/0"),
        (0, 32_767, f"{PRODUCER}/32767", f"{NEW_PRODUCER}/0"),
        (2, 32_765, f"{PRODUCER}/32766", f"{NEW_PRODUCER}/0"),
        (2, 32_766, f"{PRODUCER}/32767", f"{NEW_PRODUCER}/1"),
        (2, 32_767, f"{PRODUCER}/32767", f"{NEW_PRODUCER}/1"),
    ],
)
def test_what_is_open_is_aborted_at_the_last_epochs(
    version: int, epoch: int, aborted: str, given: str
) -> None:
    """Under version 2 the abort draws the new producer id (KAFKA-20090), before that the next InitProducerId does."""
    driver = TransactionDriver(version=version)
    driver.given(a_transaction(TransactionState.ONGOING, epoch))
    assert driver.init() == "CONCURRENT_TRANSACTIONS"
    assert driver.at() == f"PrepareAbort {aborted}"
    driver.mark()
    assert driver.init() == given


@pytest.mark.parametrize(
    ("state", "epoch"),
    [(None, 0), (TransactionState.EMPTY, 32_766), (TransactionState.ONGOING, 32_766)],
)
def test_no_producer_id_is_at_hand(
    driver: TransactionDriver, state: TransactionState | None, epoch: int
) -> None:
    if state is not None:
        driver.given(a_transaction(state, epoch))
    driver.has_producer_ids = False
    assert driver.init() == "COORDINATOR_LOAD_IN_PROGRESS"
    assert not driver.written()
    driver.has_producer_ids = True
    assert driver.init() == ("CONCURRENT_TRANSACTIONS" if state is TransactionState.ONGOING else "1000/0")


def test_there_are_too_many_ids(driver: TransactionDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONAL_IDS_MAX", 2)
    assert driver.init(name="a") == "1000/0"
    assert driver.init(name="b") == "1001/0"
    assert driver.init(name="c") == "POLICY_VIOLATION"
    assert driver.drawn == 2
    assert driver.init(name="b") == "1001/1", "what is known goes on"


def test_two_at_once_are_decided_in_order_and_told_when_they_are_in_the_log(
    driver: TransactionDriver,
) -> None:
    driver.holds = True
    assert driver.init() is None
    assert driver.init() is None
    driver.commit(1)
    assert driver.answer(1) == "1000/0"
    assert driver.answer(2) is None
    driver.commit()
    assert driver.answer(2) == "1000/1"
