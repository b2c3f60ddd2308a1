"""Storage.AlterReplicaLogDirs: moves replicas between this node's log directories (KIP-113).

Of a replica that is not here yet the directory is remembered, in memory, as Kafka does; the answer is
REPLICA_NOT_AVAILABLE. Moving to where it is calls a move off.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.moving.left_directory import is_name_too_long
from barnabas.messages.storage_pb2 import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    ReplicaLogDir,
)
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.moves.log_move import LogMove
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas


class AlterReplicaLogDirsHandler:
    """Answers AlterReplicaLogDirs."""

    def __init__(self, replicas: Replicas, lanes: Mapping[str, DirectoryLane]) -> None:
        self._replicas = replicas
        self._paths = {os.path.abspath(path): path for path in lanes}

    async def handle(self, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        """One code a replica, in order; what moves then has its directory there, and goes on after a crash."""
        begun: list[ErrorCode | LogMove] = []
        by_path: dict[str, list[LogMove]] = {}
        cordoned = self._replicas.moves.cordoned
        for item in request.replicas:
            try:
                move = self._begin(item, cordoned)
            except KafkaError as error:
                begun.append(error.code)
                continue
            begun.append(ErrorCode.none if move is None else move)
            if move is not None:
                by_path.setdefault(move.lane.path, []).append(move)
        moves = self._replicas.moves
        failed: dict[LogMove, KafkaError] = {}
        for each in await asyncio.gather(*(moves.create(path, made) for path, made in by_path.items())):
            failed |= each
        codes = [
            each if isinstance(each, ErrorCode) else failed[each].code if each in failed else ErrorCode.none
            for each in begun
        ]
        return AlterReplicaLogDirsResponse(error_codes=codes)

    def _begin(self, item: ReplicaLogDir, cordoned: set[str]) -> LogMove | None:
        """The move that is to be created; None where nothing has to be done. Raises KafkaError, with Kafka's codes in
        Kafka's order.
        """
        if is_name_too_long(item.topic, item.partition):
            raise KafkaError(ErrorCode.invalid_topic_exception)
        path = self._paths.get(item.path)
        if path is None:
            raise KafkaError(ErrorCode.log_dir_not_found)
        if path in self._replicas.offline_directories:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if path in cordoned:
            raise KafkaError(ErrorCode.invalid_replica_assignment)
        replica = self._find(item)
        if replica is not None and replica.is_offline:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if replica is None or replica.log is None:
            if replica is None:
                self._replicas.moves.prefer(item.topic, item.partition, path)
            raise KafkaError(self._absence(item))
        is_doubtful = bool(self._replicas.offline_directories)
        return self._replicas.moves.begin(replica, path, may_move=not is_doubtful)

    def _find(self, item: ReplicaLogDir) -> Replica | None:
        topic = self._replicas.image.topics.get(item.topic)
        return None if topic is None else self._replicas.find(topic.topic_id, item.partition)

    def _absence(self, item: ReplicaLogDir) -> ErrorCode:
        topic = self._replicas.image.topics.get(item.topic)
        if topic is None or not 0 <= item.partition < len(topic.partitions):
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.replica_not_available
