"""Leaders as tests make them, and what followers and the controller tell them."""

from __future__ import annotations

from typing import Final

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.storage.replica.leader_state import LeaderState

LEADER: Final = 1
NODES: Final = (1, 2, 3)
FOLLOWERS: Final = (2, 3)
EPOCHS: Final = {1: 10, 2: 20, 3: 30}


def record(
    isr: tuple[int, ...], partition_epoch: int = 0, leader_epoch: int = 0, offline: tuple[int, ...] = ()
) -> PartitionRecord:
    return PartitionRecord(
        leader=LEADER,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=NODES,
        isr=isr,
        offline_replicas=offline,
    )


def leading(isr: tuple[int, ...], *, end: int = 5, needed: int = 1) -> LeaderState:
    return LeaderState(LEADER, record(isr), log_end_offset=end, min_insync_replicas=needed, now_ms=0.0)


def fetch(
    leader: LeaderState,
    node: int,
    offset: int,
    *,
    end: int,
    now_ms: float = 1.0,
    start: int = 0,
    leader_start: int = 0,
    disk_refuses: bool = False,
) -> bool:
    return leader.on_fetch(
        node,
        offset,
        log_start_offset=start,
        leader_start_offset=leader_start,
        log_end_offset=end,
        broker_epoch=EPOCHS[node],
        eligible=EPOCHS,
        now_ms=now_ms,
        disk_refuses=disk_refuses,
    )
