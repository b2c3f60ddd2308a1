"""Whether this node has come to be in sync with what others lead, since it joined the cluster.

Whoever restarts the nodes one after another goes on when this one is ready. Were it ready as soon as it serves, the
next could stop while this one still catches up, and partitions would have fewer in-sync replicas than
min.insync.replicas asks for: producers would be refused although never more than one node was away.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.metadata.image import NO_LEADER
from barnabas.metadata.leaders import LEADER_EPOCH_MAX
from barnabas.storage.replica.replica import Replica


class CaughtUp:
    """Owner of the answer, for each broker epoch of this node.

    It stays true until the node joins anew: who falls behind later goes on to serve its clients, and its load must not
    be sent to the others, who may be as busy.
    """

    def __init__(self, node_id: int, replicas: Mapping[tuple[bytes, int], Replica]) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._reached_epoch = NO_EPOCH
        self._behind: Replica | None = None
        """One that was behind when it was last asked: of thousands, it is looked at first."""

    def holds(self, broker_epoch: int) -> bool:
        """Whether nothing was behind at some time since the node joined with `broker_epoch`."""
        if self._reached_epoch == broker_epoch:
            return True
        if self._behind is not None and self._is_behind(self._behind):
            return False
        self._behind = next((each for each in self._replicas.values() if self._is_behind(each)), None)
        if self._behind is None:
            self._reached_epoch = broker_epoch
        return self._behind is None

    def _is_behind(self, replica: Replica) -> bool:
        """Whether it is to get in sync with a leader, and is not yet.

        One without a leader waits for others who may wait for this node. One that is being moved here or away, or whose
        disk failed, is missed by nobody who asks for min.insync.replicas; one whose disk only takes no more records is
        waited for. One whose log has a leader epoch that cannot be right takes none, however long it is waited for.
        """
        record, node_id = replica.record, self._node_id
        return (
            self._replicas.get((replica.topic_id, replica.index)) is replica
            and node_id in record.replicas
            and node_id not in record.isr
            and record.leader not in (NO_LEADER, node_id)
            and node_id not in record.adding_replicas
            and node_id not in record.removing_replicas
            and not replica.is_offline
            and replica.newer_epoch <= LEADER_EPOCH_MAX
        )
