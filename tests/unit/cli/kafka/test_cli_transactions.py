"""Transactions of a cluster whose coordinators load, move and fall silent: what is read, found, ended and refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transactional_cluster import BROKERS, NODES, Id, Open, Time, TransactionalCluster

from barnabas.cli.kafka import transactions
from barnabas.cli.kafka.late_transactions import find_late
from barnabas.cli.kafka.partition_leaders import Brokers
from barnabas.cli.kafka.requests import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from barnabas.cli.kafka.transaction_ends import abort, check_hanging, find_open, terminate
from barnabas.cli.kafka.transactions import (
    AGAIN_SECONDS_MAX,
    PLACES_A_REQUEST,
    Filters,
    Listed,
    describe_transactions,
    held_back,
    list_transactions,
)
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

LOADING = ErrorCode.coordinator_load_in_progress


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    passing = Time()
    monkeypatch.setattr(transactions, "time", passing)
    return passing


@pytest.fixture
def cluster() -> TransactionalCluster:
    return TransactionalCluster(t_0=1, t_1=2, u_0=-1)


# --- what coordinators know


def test_each_node_lists_its_own_and_they_come_in_order(cluster: TransactionalCluster) -> None:
    cluster.ids = {"b": Id(1, 10), "a": Id(2, 11, "Empty")}
    found, silent = list_transactions(cluster, BROKERS.alive, Filters())
    assert found == [Listed("a", 2, 11, "Empty"), Listed("b", 1, 10, "Ongoing")]
    assert silent == []


def test_filters_are_sent(cluster: TransactionalCluster) -> None:
    cluster.ids = {"b": Id(1, 10), "a": Id(2, 11, "Empty")}
    assert [
        each.transactional_id
        for filters in (Filters(states=["Empty"]), Filters(producer_ids=[10]))
        for each in list_transactions(cluster, BROKERS.alive, filters)[0]
    ] == ["a", "b"]


@pytest.mark.parametrize(
    ("version", "filters", "said"),
    [
        (0, Filters(longer_than_ms=5), "filter transactions by their duration"),
        (1, Filters(pattern="a.*"), "filter transactional ids by a pattern"),
    ],
)
def test_an_older_broker_does_not_ignore_a_filter(
    cluster: TransactionalCluster, version: int, filters: Filters, said: str
) -> None:
    cluster.versions[LIST_TRANSACTIONS] = version
    with pytest.raises(Refused, match=f"node 1 is of a release that cannot {said}"):
        list_transactions(cluster, BROKERS.alive, filters)
    assert list_transactions(cluster, BROKERS.alive, Filters()) == ([], [])


def test_who_is_silent_is_said(cluster: TransactionalCluster) -> None:
    cluster.ids = {"b": Id(1, 10), "a": Id(2, 11)}
    cluster.silent = {2}
    found, silent = list_transactions(cluster, BROKERS.alive, Filters())
    assert ([each.transactional_id for each in found], silent) == (["b"], [2])


def test_a_coordinator_that_loads_is_waited_for(cluster: TransactionalCluster, time: Time) -> None:
    cluster.refuse(LIST_TRANSACTIONS, *[LOADING] * 3)
    assert list_transactions(cluster, NODES[:1], Filters()) == ([], [])
    assert cluster.count(LIST_TRANSACTIONS) == 4
    assert time.seconds > 1_000


def test_but_not_for_ever(cluster: TransactionalCluster, time: Time) -> None:
    cluster.refuse(LIST_TRANSACTIONS, *[LOADING] * 10_000)
    with pytest.raises(Refused, match="node 1 cannot list its transactions: COORDINATOR_LOAD_IN_PROGRESS"):
        list_transactions(cluster, NODES[:1], Filters())
    assert AGAIN_SECONDS_MAX <= time.seconds - 1_000 < AGAIN_SECONDS_MAX + 1


def test_a_bad_pattern_is_the_users(cluster: TransactionalCluster) -> None:
    cluster.refuse(LIST_TRANSACTIONS, ErrorCode.invalid_regular_expression)
    with pytest.raises(Refused, match=r"'\(' is no regular expression of Java's"):
        list_transactions(cluster, NODES[:1], Filters(pattern="("))


def test_ids_are_described_by_their_coordinators_and_unknown_ones_left_out(
    cluster: TransactionalCluster,
) -> None:
    cluster.ids = {
        "a": Id(1, 10, places=[("t", 1), ("t", 0)]),
        "b": Id(2, 11, "CompleteCommit", start_ms=None),
    }
    found = describe_transactions(cluster, ["a", "b", "gone"])
    assert sorted(found) == ["a", "b"]
    assert (found["a"].places, found["a"].start_ms, found["a"].timeout_ms) == (
        [("t", 0), ("t", 1)],
        5_000,
        60_000,
    )
    assert (found["b"].coordinator, found["b"].start_ms) == (2, None)


@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, DESCRIBE_TRANSACTIONS])
def test_a_coordinator_that_moves_is_looked_for_again(cluster: TransactionalCluster, api_key: int) -> None:
    cluster.ids = {"a": Id(2, 10)}
    cluster.refuse(api_key, ErrorCode.not_coordinator, ErrorCode.coordinator_not_available)
    assert list(describe_transactions(cluster, ["a"])) == ["a"]
    assert cluster.count(FIND_COORDINATOR) == 3


@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, DESCRIBE_TRANSACTIONS])
@pytest.mark.parametrize("code", [LOADING, ErrorCode.transactional_id_authorization_failed])
def test_what_a_coordinator_refuses_is_said(
    cluster: TransactionalCluster, api_key: int, code: ErrorCode
) -> None:
    cluster.ids = {"a": Id(2, 10)}
    cluster.refuse(api_key, *[code] * 10_000)
    with pytest.raises(Refused, match=code.name.upper()):
        describe_transactions(cluster, ["a"])


# --- late transactions


def found_in(cluster: TransactionalCluster, silent_since_ms: int = 9_000) -> list[tuple[str, int, bool]]:
    search = find_late(cluster, BROKERS, cluster.partitions, silent_since_ms)
    return [(*each.producer.place, each.is_hanging) for each in search.found]


def test_leaders_are_asked_and_partitions_without_one_are_said(cluster: TransactionalCluster) -> None:
    search = find_late(cluster, BROKERS, cluster.partitions, 9_000)
    assert (search.found, search.unseen) == ([], [("u", 0)])
    assert sorted({port for _, port in cluster.asked}) == [1, 2]


def test_where_nothing_is_held_back_nobody_is_asked_for_more(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10, start_offset=-1)]
    assert found_in(cluster) == []
    assert {api for api, _ in cluster.asked} == {LIST_OFFSETS}


def test_one_hangs_and_one_is_awaited(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10), Open(("t", 1), 11)]
    cluster.ids = {"a": Id(2, 10, places=[("t", 0)]), "b": Id(1, 11, places=[("x", 1)])}
    assert found_in(cluster) == [("t", 0, False), ("t", 1, True)]
    assert found_in(cluster, silent_since_ms=1_000) == []


def test_one_that_ends_while_coordinators_are_asked_does_not_hang(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10)]
    ask = cluster.ask_broker

    def ends_meanwhile(*arguments: object) -> object:
        if arguments[1] == LIST_TRANSACTIONS:
            cluster.open = []
        return ask(*arguments)  # type: ignore[arg-type]

    cluster.ask_broker = ends_meanwhile  # type: ignore[method-assign,assignment]
    assert found_in(cluster) == []


def test_nothing_is_said_to_hang_that_a_silent_node_may_coordinate(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10)]
    cluster.silent = {2}
    with pytest.raises(Refused, match="node 2 gave no answer, and may coordinate what was found"):
        found_in(cluster)


def test_a_leader_that_is_silent_leaves_its_partitions_unseen(cluster: TransactionalCluster) -> None:
    cluster.silent = {2}
    assert find_late(cluster, BROKERS, cluster.partitions, 9_000).unseen == [("t", 1), ("u", 0)]


def test_a_leader_that_is_no_more_leaves_its_partitions_unseen(cluster: TransactionalCluster) -> None:
    cluster.refuse(LIST_OFFSETS, *[ErrorCode.not_leader_or_follower] * 4)
    cluster.refuse(DESCRIBE_PRODUCERS, *[ErrorCode.not_leader_or_follower] * 2)
    search = find_late(cluster, BROKERS, cluster.partitions, 9_000)
    assert search.unseen == [("t", 0), ("t", 1), ("u", 0)]


def test_one_replica_is_asked_about_all_that_it_has(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10)]
    search = find_late(cluster, BROKERS, cluster.partitions, 9_000, NODES[1])
    assert [each.producer.place for each in search.found] == [("t", 0)]
    assert {port for api, port in cluster.asked if api == DESCRIBE_PRODUCERS} == {2}
    assert LIST_OFFSETS not in {api for api, _ in cluster.asked}


def test_one_broker_that_stands_for_all_is_asked_about_all(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 1), 10)]
    search = find_late(cluster, Brokers(NODES, is_shown_as_one=True), cluster.partitions, 9_000)
    assert [each.producer.place for each in search.found] == [("t", 1)]
    assert {port for _, port in cluster.asked} == {1}


def test_many_partitions_are_asked_about_in_portions(cluster: TransactionalCluster) -> None:
    places = [("t", number) for number in range(2 * PLACES_A_REQUEST + 1)]
    cluster.open = [Open(places[0], 10), Open(places[-1], 11)]
    assert held_back(cluster, ("h", 1), places) == [places[0], places[-1]]
    assert cluster.count(LIST_OFFSETS) == 6


# --- ends


def test_a_marker_goes_to_the_leader_with_what_the_partition_remembers(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 1), 10, start_offset=40, epoch=3)]
    assert find_open(cluster, ("t", 1), 40).producer_epoch == 3
    abort(cluster, ("t", 1), 10, 3, 0)
    ((port, marker),) = cluster.markers
    assert port == 2
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (10, 3, 0)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)


def test_an_older_broker_is_sent_no_version_of_the_transaction(cluster: TransactionalCluster) -> None:
    cluster.versions[WRITE_TXN_MARKERS] = 1
    abort(cluster, ("t", 0), 10, 3, 0)
    assert len(cluster.markers) == 1


def test_a_leader_that_moves_is_looked_for_again(cluster: TransactionalCluster) -> None:
    cluster.refuse(WRITE_TXN_MARKERS, ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition)
    abort(cluster, ("t", 0), 10, 3, 0)
    assert len(cluster.markers) == 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.invalid_producer_epoch, "knows producer 10 by a newer epoch than 3"),
        (ErrorCode.transaction_coordinator_fenced, "newer epoch of its coordinator than 0"),
        (ErrorCode.cluster_authorization_failed, "only who may ALTER the cluster writes markers"),
        (
            ErrorCode.not_enough_replicas,
            "cannot abort the transaction of producer 10 in t-0: NOT_ENOUGH_REPLICAS",
        ),
        (ErrorCode.not_leader_or_follower, "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_what_a_partition_refuses_is_said(cluster: TransactionalCluster, code: ErrorCode, said: str) -> None:
    cluster.refuse(WRITE_TXN_MARKERS, *[code] * 10_000)
    with pytest.raises(Refused, match=said):
        abort(cluster, ("t", 0), 10, 3, 0)


def test_a_marker_without_an_answer_may_be_written(cluster: TransactionalCluster) -> None:
    cluster.silent = {2}
    with pytest.raises(
        Refused, match="the marker may be written: `barnabas transactions describe-producers t"
    ):
        abort(cluster, ("t", 1), 10, 3, 0)


@pytest.mark.parametrize(
    ("find", "said"),
    [
        (lambda cluster: find_open(cluster, ("t", 0), 41), "no open transaction begins at offset 41 of t-0"),
        (lambda cluster: find_open(cluster, ("t", 7), 0), "topic t has no partition 7"),
        (lambda cluster: find_open(cluster, ("x", 0), 0), "no topic x"),
        (lambda cluster: find_open(cluster, ("u", 0), 0), "nobody leads u-0"),
    ],
)
def test_what_is_not_there_is_not_ended(
    cluster: TransactionalCluster, find: Callable[[TransactionalCluster], object], said: str
) -> None:
    cluster.open = [Open(("t", 0), 10, start_offset=40)]
    with pytest.raises(Refused, match=said):
        find(cluster)


def test_what_a_coordinator_will_end_does_not_hang(cluster: TransactionalCluster) -> None:
    cluster.open = [Open(("t", 0), 10)]
    producer = find_open(cluster, ("t", 0), 10)
    check_hanging(cluster, producer)
    cluster.ids = {"a": Id(2, 10, places=[("t", 1)])}
    check_hanging(cluster, producer)
    cluster.ids = {"a": Id(2, 10, places=[("t", 0)])}
    with pytest.raises(Refused, match=r"that of a \(Ongoing.*`barnabas transactions terminate a`.*--force"):
        check_hanging(cluster, producer)
    cluster.ids["a"].state = "PrepareCommit"
    with pytest.raises(Refused, match="it is decided, and its marker is on the way"):
        check_hanging(cluster, producer)


def test_terminating_goes_on_until_all_partitions_know(cluster: TransactionalCluster) -> None:
    cluster.ids = {"a": Id(2, 10)}
    cluster.refuse(INIT_PRODUCER_ID, ErrorCode.not_coordinator, *[ErrorCode.concurrent_transactions] * 3)
    terminate(cluster, "a")
    assert cluster.count(INIT_PRODUCER_ID) == 5


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.concurrent_transactions, "is being aborted, and not all of its partitions know it yet"),
        (ErrorCode.transactional_id_authorization_failed, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_what_is_not_terminated_is_said(cluster: TransactionalCluster, code: ErrorCode, said: str) -> None:
    cluster.ids = {"a": Id(2, 10)}
    cluster.refuse(INIT_PRODUCER_ID, *[code] * 10_000)
    with pytest.raises(Refused, match=said):
        terminate(cluster, "a")
