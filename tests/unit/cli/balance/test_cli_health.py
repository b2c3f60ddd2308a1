"""What `barnabas doctor` finds in clusters in which one thing is not as it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cluster_states import MEGABYTE, cluster, nodes, partition, states
from hypothesis import given

from barnabas.cli.balance.cluster_state import ClusterState, Directory
from barnabas.cli.balance.health import Examined, Finding, Throttle, examine
from barnabas.cli.balance.late_transactions import LateTransaction, Producer, Transaction


def healthy() -> ClusterState:
    """Three nodes, as many topics as there are orders, all replicas in sync and led by the preferred ones."""
    parts = [
        partition("t", at, *(1 + (at + step) % 3 for step in range(3)), size=MEGABYTE) for at in range(6)
    ]
    return cluster(nodes("", "", ""), *parts)


def with_partition(state: ClusterState, **changes: object) -> ClusterState:
    first, *others = state.partitions
    return replace(state, partitions=(replace(first, **changes), *others))  # type: ignore[arg-type]


def with_node(state: ClusterState, **changes: object) -> ClusterState:
    first, *others = state.nodes
    return replace(state, nodes=(replace(first, **changes), *others))  # type: ignore[arg-type]


def found(state: ClusterState, **more: object) -> list[Finding]:
    return examine(Examined(state, **more))  # type: ignore[arg-type]


def test_a_healthy_cluster_has_no_line() -> None:
    assert found(healthy(), min_in_sync={"t": 2}) == []


@pytest.mark.parametrize(
    ("change", "check", "said", "to_do"),
    [
        (
            lambda state: with_partition(state, leader=-1, isr=(), eligible=(2,)),
            "offline",
            "1 partition without a leader: nobody can write to or read from it (t-0)",
            "(node 2): `barnabas topics --describe --unavailable-partitions`",
        ),
        (
            lambda state: with_partition(state, isr=(1,)),
            "under-min-isr",
            "1 partition below min.insync.replicas: acks=all is refused (t-0)",
            "`barnabas topics --describe --under-min-isr-partitions`",
        ),
        (
            lambda state: with_partition(state, isr=(1, 2), sizes={1: 100, 3: 40}, size_bytes=100),
            "under-replicated",
            "1 partition out of sync on node 3, about 60 bytes behind (t-0)",
            "look at node 3's disk",
        ),
        (
            lambda state: with_partition(state, leader=2),
            "not-preferred-leader",
            "1 partition not led by the preferred replica, which is in sync (t-0)",
            "`barnabas rebalance --leaders-only --yes`",
        ),
        (
            lambda state: with_partition(state, adding=(3,), isr=(1, 2)),
            "reassigning",
            "1 partition being reassigned (t-0)",
            "`barnabas rebalance --cancel`",
        ),
        (
            lambda state: with_node(state, directories=(Directory("/d", "KAFKA_STORAGE_ERROR"),)),
            "directory-failed",
            "/d of node 1 has failed (KAFKA_STORAGE_ERROR)",
            "`barnabas nodes drain 1`",
        ),
        (
            lambda state: with_node(state, directories=(Directory("/d", None, 1000, 50),)),
            "disk-nearly-full",
            "/d of node 1 has 5.0% of its room left",
            "`barnabas rebalance`",
        ),
        (
            lambda state: with_partition(state, is_internal=True, replicas=(1,), isr=(1,)),
            "internal-replicas",
            "1 partition of internal topics with fewer than 3 replicas (t-0)",
            "`barnabas topics --alter --topic t --replication-factor 3`",
        ),
    ],
)
def test_one_thing_is_wrong(
    change: Callable[[ClusterState], ClusterState], check: str, said: str, to_do: str
) -> None:
    problems = [
        each for each in found(change(healthy()), min_in_sync={"t": 2}) if each.check not in _FOLLOWS[check]
    ]
    assert [(each.check, each.what) for each in problems if each.is_problem] == [(check, said)]
    assert to_do in problems[0].to_do


_FOLLOWS = {
    "offline": ("under-replicated",),
    "under-min-isr": ("under-replicated",),
    "under-replicated": (),
    "not-preferred-leader": (),
    "reassigning": (),
    "directory-failed": (),
    "disk-nearly-full": (),
    "internal-replicas": ("under-min-isr",),
}
"""What comes of what is wrong, by necessity."""


def test_a_node_is_away() -> None:
    state = with_node(healthy(), is_fenced=True)
    survivors = (
        replace(part, isr=(2, 3), leader=2 if part.leader == 1 else part.leader) for part in state.partitions
    )
    state = replace(state, partitions=tuple(survivors))
    away, behind = found(state, min_in_sync={"t": 2})
    assert (away.check, away.what) == ("node-fenced", "node 1 is fenced, with 6 replicas")
    assert "`barnabas nodes drain 1`, then `barnabas nodes remove 1`" in away.to_do
    assert behind.what.startswith("6 partitions out of sync on node 1, which is away (t-0, t-1, t-2, ...)")


def test_a_follower_that_is_out_of_sync_for_its_full_disk_waits_for_room() -> None:
    state = with_node(healthy(), directories=(Directory("/d", None, 1000, 1),))
    lagging = replace(state.partitions[0], isr=(2, 3), leader=2, sizes={1: 40, 2: 100}, size_bytes=100)
    full, behind = found(replace(state, partitions=(lagging, *state.partitions[1:])), min_in_sync={"t": 2})
    assert (full.check, behind.check) == ("disk-nearly-full", "under-replicated")
    assert full.to_do.endswith("a shorter retention.ms of t, which has most there")
    assert behind.to_do == "it goes on once node 1 has room on its disk"


def test_a_replica_whose_disk_refuses_is_told_apart_from_one_that_lags() -> None:
    first, second, *others = healthy().partitions
    lost = replace(first, isr=(1, 2), offline=(3,), sizes={1: 100, 3: 100}, size_bytes=100)
    lagging = replace(second, isr=tuple(each for each in second.replicas if each != 3), leader=second.leader)
    state = replace(healthy(), partitions=(lost, lagging, *others))
    behind, refused = (each for each in found(state) if each.check == "under-replicated")
    assert behind.what.startswith("1 partition out of sync on node 3, about 0 bytes behind")
    assert refused.what == "1 partition out of sync on node 3, whose disk refuses them (t-0)"
    assert refused.to_do.startswith("node 3's log names the directory")
    away = replace(state, nodes=tuple(replace(each, is_fenced=each.node_id == 3) for each in state.nodes))
    assert not any("refuses" in each.what for each in found(away))


def test_a_follower_that_lags_under_a_throttle_is_said_to() -> None:
    throttles = [Throttle("broker 2", "leader.replication.throttled.rate", "1000")]
    lagging = with_partition(healthy(), isr=(1, 2), sizes={1: 100, 3: 40}, size_bytes=100)
    behind, left = found(lagging, throttles=throttles)
    assert (behind.check, left.check) == ("under-replicated", "throttles-left")
    assert "as slowly as the replication throttles let it" in behind.to_do


def test_a_node_does_not_answer() -> None:
    (silent,) = found(with_node(healthy(), directories=None))
    assert (silent.check, silent.is_problem) == ("node-silent", True)
    assert found(replace(with_node(healthy(), directories=None), is_shown_as_one=True)) == []


def test_a_forgotten_node_still_has_replicas() -> None:
    state = with_node(healthy(), is_registered=False, is_fenced=True)
    assert "node-unknown" in [finding.check for finding in found(state)]


def test_reassignments_wait_for_a_node_that_is_away() -> None:
    state = with_partition(with_node(healthy(), is_fenced=True), adding=(1,), isr=(2, 3), leader=2)
    (stuck,) = [finding for finding in found(state) if finding.check == "reassigning"]
    assert "waiting for node 1" in stuck.what


def test_throttles_are_left_only_when_nothing_is_reassigned() -> None:
    throttles = [Throttle("broker 1", "leader.replication.throttled.rate", "1000")]
    (left,) = found(healthy(), throttles=throttles)
    assert left.check == "throttles-left"
    assert left.subjects == ("broker 1: leader.replication.throttled.rate=1000",)
    reassigning = with_partition(healthy(), adding=(3,))
    assert [finding.check for finding in found(reassigning, throttles=throttles)] == ["reassigning"]


def test_who_has_joined_leads_nothing() -> None:
    state = replace(healthy(), nodes=nodes("", "", "", ""))
    idle, uneven = found(state)
    assert (idle.check, idle.subjects) == ("no-leaders", ("4",))
    assert uneven.check == "unbalanced"
    assert "`barnabas rebalance`" in uneven.to_do


def test_leaders_are_uneven() -> None:
    parts = [partition("t", at, 1, 2, 3, size=MEGABYTE) for at in range(12)]
    checks = [finding.check for finding in found(cluster(nodes("", "", ""), *parts))]
    assert checks == ["no-leaders", "leaders-uneven"]


def test_replicas_share_a_rack() -> None:
    parts = [partition("t", at, 1 + at % 2, 2 - at % 2) for at in range(4)]
    parts.append(partition("t", 5, 3, 1))
    (apart,) = [
        finding for finding in found(cluster(nodes("a", "a", "b"), *parts)) if finding.check == "racks"
    ]
    assert apart.what.startswith("4 partitions with replicas that share a rack")


def test_draining_and_single_replicas_are_remarks() -> None:
    state = with_node(healthy(), cordoned=("*",))
    (draining,) = found(state)
    assert (draining.check, draining.is_problem) == ("draining", False)
    assert "`barnabas nodes undrain 1`" in draining.to_do
    alone = replace(healthy(), partitions=(*healthy().partitions, partition("u", 0, 2)))
    (single,) = found(alone)
    assert (single.check, single.is_problem) == ("one-replica", False)
    assert single.to_do.endswith("`barnabas topics --alter --topic u --replication-factor 3`")


def test_a_full_directory_beside_one_with_room_is_evened_out_first() -> None:
    full, roomy = Directory("/d", None, 1000, 50), Directory("/e", None, 1000, 900)
    (beside,) = found(with_node(healthy(), directories=(full, roomy)))
    assert beside.to_do.startswith("`barnabas log-dirs even --broker 1`; or `barnabas rebalance` if others")
    for other in (replace(roomy, is_cordoned=True), replace(roomy, error="KAFKA_STORAGE_ERROR")):
        first = found(with_node(healthy(), directories=(full, other)))
        said = [each.to_do for each in first if each.check == "disk-nearly-full"]
        assert len(said) == 1
        assert "log-dirs even" not in said[0]
    both = found(with_node(healthy(), directories=(full, replace(roomy, usable_bytes=60))))
    assert not any("log-dirs even" in each.to_do for each in both)


def test_moves_and_cordoned_directories_are_remarks() -> None:
    open_, closed = Directory("/d", None, 1000, 900), Directory("/e", None, 1000, 900, is_cordoned=True)
    state = with_node(healthy(), directories=(open_, closed))
    (cordoned,) = found(state)
    assert (cordoned.check, cordoned.is_problem, cordoned.subjects) == ("cordoned", False, ("/e",))
    assert "`barnabas log-dirs even --broker 1`" in cordoned.to_do
    moving = with_node(healthy(), directories=(replace(open_, future_replicas=2),))
    (said,) = found(moving)
    assert (said.check, said.what) == ("moving", "2 replicas of node 1 on the way to /d")


def test_the_throttle_of_moves_is_left_only_when_nothing_moves() -> None:
    (left,) = found(healthy(), move_rates={1: "1000"})
    assert left.check == "throttles-left"
    assert "--broker 1 --delete-config replica.alter.log.dirs.io.max.bytes.per.second" in left.to_do
    moving = with_node(healthy(), directories=(Directory("/d", None, 1000, 900, future_replicas=1),))
    assert [each.check for each in found(moving, move_rates={1: "1000"})] == ["moving"]


@given(states())
def test_every_line_says_what_to_do(state: ClusterState) -> None:
    for finding in examine(Examined(state)):
        assert finding.to_do
        assert "\n" not in finding.what + finding.to_do
        assert len(finding.what) < 300


def late_transaction(number: int, awaited: Transaction | None = None) -> LateTransaction:
    return LateTransaction(Producer(("t", number), 7, 3, 1, 5, 1_000, 40 + number), awaited)


def test_a_transaction_that_hangs_is_to_be_aborted() -> None:
    (finding,) = found(healthy(), late_transactions=[late_transaction(2)])
    assert (finding.check, finding.is_problem, finding.subjects) == ("hanging-transaction", True, ("t-2",))
    assert finding.what == (
        "1 transaction open that no coordinator will end: readers of committed records wait (t-2)"
    )
    assert finding.to_do == "`barnabas transactions abort t --partition 2 --start-offset 42`"


def test_of_several_that_hang_one_is_an_example() -> None:
    (finding,) = found(healthy(), late_transactions=[late_transaction(at) for at in range(5)])
    assert "5 transactions" in finding.what
    assert "(t-0, t-1, t-2, ...)" in finding.what
    assert len(finding.subjects) == 5
    assert finding.to_do.endswith("; `barnabas transactions find-hanging` shows the others")


def test_a_transaction_that_a_coordinator_is_late_to_end_is_one_line_for_all_its_partitions() -> None:
    places = [("t", 0), ("t", 1)]
    first, second = (Transaction(name, 2, 7, 3, "PrepareCommit", 60_000, 900, places) for name in ("b", "a"))
    late = [late_transaction(0, first), late_transaction(1, first), late_transaction(2, second)]
    findings = found(healthy(), late_transactions=late)
    assert [(each.check, each.subjects) for each in findings] == [
        ("late-transaction", ("t-2",)),
        ("late-transaction", ("t-0", "t-1")),
    ]
    assert (
        "the transaction of b (PrepareCommit) should have ended, and has not in t-0, t-1" in findings[1].what
    )
    assert "node 2; `barnabas transactions describe b`" in findings[1].to_do


def test_transactions_that_cannot_be_looked_at_are_a_remark() -> None:
    (finding,) = found(healthy(), why_no_transactions="node 2 gave no answer")
    assert (finding.check, finding.is_problem) == ("transactions-unknown", False)
    assert finding.what == "whether transactions hang is not known: node 2 gave no answer"
