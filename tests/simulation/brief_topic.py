"""A topic that is deleted, and made again under the same name, while other things fail.

Each of its lives has clients of its own, which name it by its id: what one of them is told belongs to one life. Nothing
of a former one may be seen in the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from checks import image_of
from clients import BY_ID, Producer
from consumers import Consumer, Reader
from history import History, Place
from kafka_client import RETRY_SECONDS, KafkaClient, create_topic
from world import World

from barnabas.kernel.errors import ErrorCode

BRIEF: Final = "brief"

DELETE_TOPICS: Final = 20

TIMEOUT_MS: Final = 1_500


class BriefTopic:
    """Owner of the clients of its present life, and of what they were told."""

    def __init__(self, world: World, client: KafkaClient, topic: dict[str, Any]) -> None:
        """`topic` as CreateTopics has it."""
        self.history = History(world)
        self.places: Sequence[Place] = [Place(BRIEF, number) for number in range(topic["num_partitions"])]
        self._world = world
        self.client = client
        self._topic = {**topic, "name": BRIEF}
        self._ends = asyncio.Event()
        self._lives = 0
        self._is_there = False
        self._producers: list[Producer] = []
        self.readers: list[Reader] = []

    def end_life(self) -> None:
        """The topic is to be deleted, and made again."""
        self._ends.set()

    def unmet(self) -> list[str]:
        if not self._is_there or self._ends.is_set():
            return [f"life {self._lives} of {BRIEF} does not begin"]
        return [f"{each.name} waits for {each.place}" for each in self._producers if not each.is_done]

    async def run(self, until: float) -> None:
        """One life after the other; producers of the last one end then."""
        while True:
            self._lives += 1
            self.history = History(self._world)
            self._ends.clear()
            problem = await create_topic(self.client, self._topic)
            if problem:
                self._world.violate(f"{BRIEF} cannot be created: {problem}")
            self._say(f"life {self._lives} begins")
            async with asyncio.TaskGroup() as tasks:
                clients = self._begin(tasks.create_task, until)
                await self._ends.wait()
                for each in clients:
                    each.cancel()
            self._is_there = False
            self.client.forget(BRIEF, await self._delete())

    def _begin(
        self, create_task: Callable[..., asyncio.Task[None]], until: float
    ) -> list[asyncio.Task[None]]:
        self._producers, self.readers, tasks = [], [], []
        for place in self.places:
            name = f"idempotent-{BRIEF}{self._lives}"
            chance = self._world.chance_of(f"{name}/{place}")
            producer = Producer(
                *(self._world, self.client, self.history, name, place),
                acks=-1,
                in_flight=chance.choice((1, 3)),
                versions=BY_ID,
                chance=chance,
            )
            reader = Reader(self._world, self.client, self.history, f"consumer-{BRIEF}{self._lives}", place)
            consumer = Consumer(self._world, self.client, reader, BY_ID, chance)
            self._producers.append(producer)
            self.readers.append(reader)
            tasks.append(create_task(producer.run(until, is_idempotent=True), name=producer.name))
            tasks.append(create_task(consumer.run(), name=consumer.name))
        self._is_there = True
        return tasks

    async def _delete(self) -> bytes:
        """By its id, which this returns: a request that comes late is not to end the next life."""
        topic_id = image_of(self._world).topics[BRIEF].topic_id
        request = {"topics": [{"name": None, "topic_id": topic_id}], "timeout": TIMEOUT_MS}
        while True:
            answer = await self.client.ask(DELETE_TOPICS, 6, request)
            code = ErrorCode(answer.responses[0].error_code)
            self._say(f"life {self._lives} ends: {code.name}")
            if code in (ErrorCode.none, ErrorCode.unknown_topic_id):
                return topic_id  # an answer may have been lost
            if code not in (ErrorCode.request_timed_out, ErrorCode.not_controller):
                self._world.violate(f"{BRIEF} cannot be deleted: {code.name}")
            await asyncio.sleep(RETRY_SECONDS)

    def _say(self, what: str) -> None:
        self._world.trace.say(BRIEF, what)
