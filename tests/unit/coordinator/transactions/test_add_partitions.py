"""AddPartitionsToTxn, adding and verifying: every state, epoch and producer id; what has no place in a record."""

from __future__ import annotations

import pytest
from transaction_driver import PRODUCER, STATES, TransactionDriver, a_transaction, partitions

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.states import COMPLETED, PREPARED, TransactionState

AT_REST = [TransactionState.EMPTY, *sorted(COMPLETED)]


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


def known_in(state: TransactionState, *, is_reloaded: bool, epoch: int = 5) -> TransactionDriver:
    driver = TransactionDriver()
    driver.given(a_transaction(state, epoch, now_ms=driver.clock.now_ms()))
    driver.clock.advance(1_000)
    if is_reloaded:
        driver.reload()
    return driver


@pytest.mark.parametrize("verify", [False, True])
def test_ids_that_are_empty_or_nobodys(driver: TransactionDriver, verify: bool) -> None:
    assert driver.add("t-0", "t-1", name="", verify=verify) == "INVALID_REQUEST,INVALID_REQUEST"
    assert driver.add(verify=verify) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (PRODUCER + 1, 5, "INVALID_PRODUCER_ID_MAPPING"),
        (PRODUCER + 1, 4, "INVALID_PRODUCER_ID_MAPPING"),
        (PRODUCER, 4, "PRODUCER_FENCED"),
        (PRODUCER, 6, "PRODUCER_FENCED"),
    ],
)
def test_somebody_elses(
    state: TransactionState, verify: bool, is_reloaded: bool, producer_id: int, epoch: int, code: str
) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    if state in PREPARED and not verify:
        code = "CONCURRENT_TRANSACTIONS"  # it may have the id and epoch that follow
    assert driver.add("t-0", "u-1", producer_id=producer_id, epoch=epoch, verify=verify) == f"{code},{code}"
    assert not driver.written()


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("state", sorted(PREPARED))
def test_partitions_are_still_being_told(state: TransactionState, verify: bool, is_reloaded: bool) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    assert driver.add(verify=verify) == "CONCURRENT_TRANSACTIONS"
    assert not driver.written()


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partitions_begin_a_transaction(
    state: TransactionState, version: int, is_reloaded: bool
) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    assert driver.add("t-0", "t-1", version=version) == "NONE,NONE"
    transaction = driver.now()
    assert driver.at() == f"Ongoing {PRODUCER}/5"
    assert transaction.partitions == partitions("t-0", "t-1")
    assert transaction.start_ms == transaction.last_update_ms == driver.clock.now_ms()
    assert transaction.client_version == version


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_more_partitions_join_them(is_reloaded: bool) -> None:
    driver = known_in(TransactionState.ONGOING, is_reloaded=is_reloaded)
    assert driver.add("t-0", "u-3", version=0) == "NONE,NONE"
    transaction = driver.now()
    assert transaction.partitions == partitions("t-0", "u-3")
    assert transaction.last_update_ms == driver.clock.now_ms()
    assert transaction.start_ms == driver.clock.now_ms() - 1_000, "the transaction's time runs since it began"
    assert transaction.client_version == 0


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_what_is_there_is_not_written_again(is_reloaded: bool) -> None:
    driver = known_in(TransactionState.ONGOING, is_reloaded=is_reloaded)
    assert driver.add("t-0", version=0) == "NONE"
    assert not driver.written()


def test_the_answer_waits_for_the_record_that_it_rests_on(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.EMPTY))
    driver.holds = True
    assert driver.add("t-0") is None
    assert driver.add("t-0") is None, "the record of the first one is not in the log"
    driver.commit()
    assert [driver.answer(1), driver.answer(2)] == ["NONE", "NONE"]


# -- verifying ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize(
    ("state", "codes"),
    [
        (TransactionState.ONGOING, "NONE,TRANSACTION_ABORTABLE"),
        (TransactionState.EMPTY, "TRANSACTION_ABORTABLE,TRANSACTION_ABORTABLE"),
        (TransactionState.COMPLETE_COMMIT, "TRANSACTION_ABORTABLE,TRANSACTION_ABORTABLE"),
        (TransactionState.COMPLETE_ABORT, "TRANSACTION_ABORTABLE,TRANSACTION_ABORTABLE"),
    ],
)
def test_verifying_says_it_of_each_partition(state: TransactionState, codes: str, is_reloaded: bool) -> None:
    driver = known_in(state, is_reloaded=is_reloaded)
    assert driver.add("t-0", "t-1", verify=True) == codes
    assert not driver.written()


def test_verifying_waits_for_nothing_and_goes_by_what_is_committed(driver: TransactionDriver) -> None:
    """While another add is on its way it is not CONCURRENT_TRANSACTIONS (KAFKA-14904), and no promise either. Only a no
    has to wait, as it is for the owner to say."""
    driver.given(a_transaction(TransactionState.ONGOING))
    driver.holds = True
    driver.add("t-1")
    assert driver.add("t-0", verify=True) == "NONE"
    waiter = driver.next_waiter
    assert driver.add("t-0", "t-1", verify=True) is None
    driver.end("commit")
    assert driver.add("t-0", verify=True) == "NONE"
    driver.commit(2)
    assert driver.answer(waiter) == "NONE,TRANSACTION_ABORTABLE"
    assert driver.add("t-0", "t-1", verify=True) == "NONE,NONE"
    driver.commit()
    assert driver.add("t-0", epoch=6, verify=True) == "CONCURRENT_TRANSACTIONS"


# -- what has no place ----------------------------------------------------------------------------------------------


def test_more_partitions_than_a_transaction_may_have(
    driver: TransactionDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_PARTITIONS_MAX", 3)
    driver.given(a_transaction(TransactionState.ONGOING))
    assert driver.add("t-1", "t-2") == "NONE,NONE"
    assert driver.add("t-2", "t-3") == "TRANSACTION_ABORTABLE,TRANSACTION_ABORTABLE"
    assert driver.now().partitions == partitions("t-0", "t-1", "t-2")
    assert driver.end("abort") == f"{PRODUCER}/6", "its producer can abort, and go on"


def test_more_than_a_record_can_have(driver: TransactionDriver) -> None:
    """The record of all that is let in has its bytes: the driver encodes it and holds them against the limit."""
    driver.given(a_transaction(TransactionState.EMPTY))
    answers = []
    for first in range(0, 6_000, 500):
        names = [f"{'é' * 120}{number:05}-0" for number in range(first, first + 500)]
        answers.append(set((driver.add(*names) or "").split(",")))
    assert answers[0] == {"NONE"}
    assert answers[-1] == {"TRANSACTION_ABORTABLE"}
    refused = answers.index({"TRANSACTION_ABORTABLE"})
    assert len(driver.now().partitions) == 500 * refused
    assert driver.end("commit") == f"{PRODUCER}/6"


def test_a_topic_whose_name_is_none(driver: TransactionDriver) -> None:
    driver.given(a_transaction(TransactionState.EMPTY))
    assert driver.add(f"{'t' * 32_768}-0") == "INVALID_TOPIC_EXCEPTION"
    assert not driver.written()


def test_version_2_has_no_place_while_it_is_off() -> None:
    driver = TransactionDriver(version=0)
    driver.given(a_transaction(TransactionState.EMPTY, version=0))
    assert driver.add(version=2) == "UNSUPPORTED_VERSION"
    assert driver.add(version=0) == "NONE"
    driver.version = 1
    assert driver.add("t-1", version=2) == "NONE"
