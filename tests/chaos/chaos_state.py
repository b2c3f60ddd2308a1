"""What the cluster says of its partitions, and what an administrator asks of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from chaos_processes import wait_for
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from raw_client import RawConnection
from raw_transactions import LIST_TRANSACTIONS

from barnabas.kernel.errors import ErrorCode

METADATA, ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 3, 43, 45, 46
PREFERRED: Final = 0
SYNC_SECONDS_MAX: Final = 60.0
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.election_not_needed,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.not_controller,
        ErrorCode.coordinator_not_available,
    }
)


class ClusterState:
    """Asks whoever answers."""

    def __init__(self, bootstrap: str, topics: Sequence[str], replicas: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        self._topics = [*topics, "__consumer_offsets", "__transaction_state"]
        self._replicas = replicas

    def partitions(self) -> Iterator[tuple[str, Any]]:
        """The topics' partitions, as a client is told of them; nothing where none answers."""
        with contextlib.suppress(KafkaException):
            found = self._admin.list_topics(timeout=2).topics
            for name in self._topics:
                if name not in found or not found[name].partitions:
                    yield name, None
                    continue
                for partition in found[name].partitions.values():
                    yield name, partition

    def describe(self) -> list[str]:
        return [
            f"{name}-{each.id}: leader {each.leader}, replicas {each.replicas}, ISR {each.isrs}"
            if each is not None
            else f"{name}: not there"
            for name, each in self.partitions()
        ]

    def is_in_sync(self) -> bool:
        found = [each for _, each in self.partitions()]
        return bool(found) and all(
            each is not None and each.leader >= 0 and len(each.replicas) == len(each.isrs) == self._replicas
            for each in found
        )

    def wait_in_sync(self) -> float:
        """After how many seconds all replicas are in sync."""
        return wait_for(self.is_in_sync, "all replicas are in sync", SYNC_SECONDS_MAX, self.describe)

    def is_led_without(self, node: str) -> bool:
        """Whether every partition has a leader, and this node is not among those in sync."""
        node_id = int(node.rpartition("-")[2])
        found = [each for _, each in self.partitions()]
        return bool(found) and all(
            each is not None and each.leader >= 0 and node_id not in each.isrs for each in found
        )

    def open_transactions(self) -> list[str]:
        """Transactional ids whose transaction is not over, and their states; what cannot be asked is said, too."""
        answer = self._ask(LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
        listed = [f"{each.transactional_id}: {each.transaction_state}" for each in answer.transaction_states]
        is_over = tuple(f": {state}" for state in ("Empty", "CompleteCommit", "CompleteAbort"))
        failed = [answer.error_code.name] if answer.error_code else []
        return failed + [each for each in listed if not each.endswith(is_over)]

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Have the partition on these nodes; returns when it is."""
        row = {"partition_index": partition, "replicas": list(replicas)}
        body = {
            "timeout_ms": 10_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        deadline = time.monotonic() + SYNC_SECONDS_MAX
        while True:
            answer = self._ask(ALTER_PARTITION_REASSIGNMENTS, 1, body)
            codes = [
                answer.error_code,
                *(each.error_code for row in answer.responses for each in row.partitions),
            ]
            if not any(codes):
                break
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

        def is_done() -> bool:
            return any(
                name == topic
                and each is not None
                and each.id == partition
                and list(each.replicas) == list(replicas)
                and sorted(each.isrs) == sorted(replicas)
                for name, each in self.partitions()
            )

        wait_for(is_done, f"{topic}-{partition} is on {replicas}", SYNC_SECONDS_MAX, self.describe)

    def elect_preferred_leaders(self) -> None:
        """Have every partition led by its first replica."""
        body = {"election_type": PREFERRED, "topic_partitions": None, "timeout_ms": 10_000}
        answer = self._ask(ELECT_LEADERS, 2, body)
        codes = {each.error_code for row in answer.replica_election_results for each in row.partition_result}
        refused = {ErrorCode(code) for code in (answer.error_code, *codes)} - TRY_AGAIN
        assert not refused, refused

    def _ask(self, api_key: int, version: int, body: Any) -> Any:
        for port in self._ports:
            with contextlib.suppress(OSError), RawConnection(port) as connection:
                return connection.ask(api_key, version, body)
        raise ConnectionError("no gateway answers")
