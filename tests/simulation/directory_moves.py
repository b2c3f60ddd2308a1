"""An administrator moves replicas between the log directories of their nodes."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from checks import image_of
from history import Place
from kafka_client import KafkaClient
from kafka_connection import Disconnected
from machines import NodeMachine
from world import World

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import PartitionRecord

ALTER_REPLICA_LOG_DIRS: Final = 34

MAY_NOT_MOVE: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.kafka_storage_error,
        ErrorCode.replica_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_replica_assignment,  # the node is being emptied, and cordoned
        ErrorCode.request_timed_out,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_server_error,
    }
)


class DirectoryMoves:
    """Asks for them."""

    def __init__(
        self, world: World, client: KafkaClient, nodes: Sequence[NodeMachine], chance: random.Random
    ) -> None:
        self._world = world
        self._client = client
        self._nodes = nodes
        self._chance = chance

    async def make(self, places: Sequence[Place]) -> None:
        """Some replicas of each node go to its other log directory, or back before they are there."""
        image = image_of(self._world)
        wanted: dict[tuple[NodeMachine, str], list[Place]] = {}
        for node in self._nodes:
            for place in places:
                record = image.topics[place.topic].partitions[place.partition]
                if node.node_id in record.replicas and self._chance.random() < 0.7:
                    wanted.setdefault((node, self._place_to_be(node, record)), []).append(place)
        async with asyncio.TaskGroup() as tasks:
            for (node, path), moving in wanted.items():
                tasks.create_task(self._move_to(node, path, moving), name="moves of a node")

    def _place_to_be(self, node: NodeMachine, record: PartitionRecord) -> str:
        replica = None if node.replicas is None else node.replicas.find(record.topic_id, record.partition)
        if replica is None or replica.lane is None or self._chance.random() < 0.2:
            return self._chance.choice(node.log_directories)
        return next(path for path in node.log_directories if path != replica.lane.path)

    async def _move_to(self, node: NodeMachine, path: str, places: Sequence[Place]) -> None:
        """Asked once: who is away is not told later."""
        partitions: dict[str, list[int]] = defaultdict(list)
        for place in places:
            partitions[place.topic].append(place.partition)
        topics = [{"name": name, "partitions": numbers} for name, numbers in partitions.items()]
        request = {"dirs": [{"path": path, "topics": topics}]}
        try:
            answer = await self._client.ask_broker(node.node_id, ALTER_REPLICA_LOG_DIRS, 2, request)
        except (ConnectionError, Disconnected) as error:
            self._say(f"no answer of {node.name} about its log directories: {error}")
            return
        for topic in answer.results:
            for row in topic.partitions:
                what = f"{topic.topic_name}-{row.partition_index} to {path} of {node.name}"
                code = ErrorCode(row.error_code)
                self._say(f"{what}: {code.name}")
                if code not in MAY_NOT_MOVE:
                    self._world.violate(f"{what} cannot move: {code.name}")

    def _say(self, what: str) -> None:
        self._world.trace.say("administrator", what)
