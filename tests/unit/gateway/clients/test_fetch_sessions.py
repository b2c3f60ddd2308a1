"""Incremental fetch sessions (KIP-227): epochs, changes, order, and room for new ones."""

from __future__ import annotations

import random

import pytest

from barnabas.gateway import limits
from barnabas.gateway.clients.fetch_sessions import FetchSession, FetchSessions, WantedPartition
from barnabas.kernel.errors import ErrorCode, KafkaError


def want(partition: int, fetch_offset: int = 0) -> WantedPartition:
    return WantedPartition("orders", partition, fetch_offset, 1_000, -1, -1)


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, random.Random(3), idle_ms=100)


def opened(owner: FetchSessions, *partitions: int, now_ms: int = 0) -> FetchSession:
    session = owner.open([want(partition) for partition in partitions], uses_topic_ids=False, now_ms=now_ms)
    assert session is not None
    return session


def refusal(owner: FetchSessions, session_id: int, epoch: int, *, uses_topic_ids: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        owner.use(session_id, epoch, uses_topic_ids=uses_topic_ids, now_ms=0)
    return caught.value.code


def test_epochs_rise_with_each_request() -> None:
    owner = sessions()
    session = opened(owner, 0)
    assert session.epoch == 1
    owner.use(session.session_id, 1, uses_topic_ids=False, now_ms=0)
    assert session.epoch == 2
    assert refusal(owner, session.session_id, 1) is ErrorCode.invalid_fetch_session_epoch
    assert refusal(owner, session.session_id + 1, 2) is ErrorCode.fetch_session_id_not_found
    assert (
        refusal(owner, session.session_id, 2, uses_topic_ids=True) is ErrorCode.fetch_session_topic_id_error
    )
    assert session.epoch == 2


def test_epoch_after_the_highest_is_one() -> None:
    session = FetchSession(1, 2**31 - 1, uses_topic_ids=False)
    session.advance()
    assert session.epoch == 1


def test_changes_keep_what_was_told_and_forgotten_partitions_go() -> None:
    session = opened(sessions(), 0, 1, 2)
    session.partitions["orders", 1].told = (5, 5, 0)
    session.update([want(1, 7), want(3)], [("orders", 0), ("orders", 9)])
    assert list(session.partitions) == [("orders", 1), ("orders", 2), ("orders", 3)]
    changed = session.partitions["orders", 1]
    assert (changed.fetch_offset, changed.told) == (7, (5, 5, 0))


def test_partitions_that_had_data_are_read_last() -> None:
    session = opened(sessions(), 0, 1, 2)
    session.move_to_end([("orders", 0), ("orders", 9)])
    assert [partition for _, partition in session.partitions] == [1, 2, 0]


def test_only_an_idle_session_gives_up_its_place() -> None:
    owner = sessions(2)
    first, second = opened(owner, 0, now_ms=0), opened(owner, 1, now_ms=50)
    assert owner.open([], uses_topic_ids=False, now_ms=99) is None
    owner.use(first.session_id, 1, uses_topic_ids=False, now_ms=120)
    third = opened(owner, 2, now_ms=150)
    assert len(owner) == 2
    assert refusal(owner, second.session_id, 1) is ErrorCode.fetch_session_id_not_found
    owner.close(third.session_id)
    owner.close(third.session_id)
    assert len(owner) == 1


def test_partitions_of_all_sessions_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_SESSIONS_PARTITIONS_MAX", 5)
    owner = sessions(10)
    first = opened(owner, 0, 1, now_ms=0)
    opened(owner, 0, 1, 2, now_ms=50)
    assert owner.open([want(0)], uses_topic_ids=False, now_ms=99) is None
    third = opened(owner, 0, 1, now_ms=100)
    assert (len(owner), owner.peek(first.session_id)) == (2, None), "the idle one made room"
    owner.update(third, [], [("orders", 0)])
    owner.update(third, [want(5)], [("orders", 1)])
    opened(owner, 3, now_ms=101)
    assert owner.open([want(0)], uses_topic_ids=False, now_ms=101) is None
    assert owner.open([want(0)] * 2, uses_topic_ids=False, now_ms=1000) is not None
    assert owner._partition_count == sum(len(session.partitions) for session in owner._sessions.values())


def test_a_session_has_no_more_partitions_than_a_request_may_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_SESSION_PARTITIONS_MAX", 3)
    owner = sessions()
    assert owner.open(map(want, range(4)), uses_topic_ids=False, now_ms=0) is None
    session = opened(owner, 0, 1)
    owner.update(session, [want(1), want(2)], [])
    with pytest.raises(KafkaError) as caught:
        owner.update(session, [want(2), want(3)], [])
    assert caught.value.code is ErrorCode.fetch_session_id_not_found
    assert (len(owner), owner._partition_count, owner._by_connection) == (0, 0, {})


def test_sessions_end_with_their_connection() -> None:
    owner = sessions(10)
    for connection_id in (1, 1, 2):
        assert owner.open([want(0)], uses_topic_ids=False, now_ms=0, connection_id=connection_id)
    owner.close_of_connection(1)
    owner.close_of_connection(3)
    assert [session.connection_id for session in owner._sessions.values()] == [2]
    owner.close_of_connection(2)
    assert (len(owner), owner._partition_count, owner._by_connection) == (0, 0, {})
