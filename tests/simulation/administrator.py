"""An administrator of a simulated cluster: reassigns partitions, elects leaders, deletes records, empties nodes.

What he asks for he asks again until he is told what has become of it, as Kafka's tools are run again by who saw them
fail. A request that nobody answered may come late, so that more than one of what he asked for may be what holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from brief_topic import BRIEF
from checks import image_of
from copies import with_a_readable_one
from directory_moves import DirectoryMoves
from fault_kinds import Fault
from history import History, Place
from kafka_client import RETRY_SECONDS, KafkaClient
from kafka_connection import Disconnected
from machines import Machine, NodeMachine
from membership_plan import CANCEL, DELETE, DRAIN, ELECT, FOR_GOOD, GIVE_BACK, MOVE, PREFER, REASSIGN
from world import World

from barnabas.cli.balance.cluster_state import ClusterState, Node, Partition
from barnabas.cli.balance.draining import plan_drain
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import MetadataImage

DELETE_RECORDS: Final = 21
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
UNREGISTER_BROKER: Final = 64

BROKER_RESOURCE: Final = 4
SET, UNSET = 0, 1

TIMEOUT_MS: Final = 1_500
DELETE_ATTEMPTS: Final = 5
DELETE_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.offset_out_of_range,  # of a leader that does not know yet how far the one before it was
    }
)

DELETED_SECONDS_MAX: Final = 1.0
"""What a node is given to delete what it has no more, before it gets it again."""

STOP_SECONDS_MAX: Final = 5.0
"""What a node that has nothing any more is given to stop."""

TRY_AGAIN: Final = frozenset(
    {ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.unknown_server_error}
)

Replicas = tuple[int, ...]


class Administrator:
    """Owner of what was asked for, and of the nodes that are to go."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: History,
        machines: Mapping[str, Machine],
        places: Sequence[Place],
    ) -> None:
        self._world = world
        self.client = client
        self._machines = machines
        self._nodes = [each for each in machines.values() if isinstance(each, NodeMachine)]
        self._history = history
        self._places = places
        self._chance = world.chance_of("administrator")
        self._moves = DirectoryMoves(world, client, self._nodes, self._chance)
        self._asked: asyncio.Queue[Fault] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._under_way: dict[int, str] = {}
        self._asking = asyncio.Lock()
        self._unanswered: dict[Place, set[Replicas | None]] = {}
        """What was asked for and may come yet."""
        self._wanted: dict[Place, set[Replicas | None] | None] = {}
        """What each partition's replicas may be, of what was asked for; None where nobody can tell."""
        self._leaving: set[int] = set()
        """Nodes that are being emptied, or are gone."""

    # -- what he is asked to do ---------------------------------------------------------------------------------

    def ask(self, fault: Fault) -> None:
        """He begins with it now, and ends with it when he can."""
        self._asked.put_nowait(fault)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._carry_out(await self._asked.get()), name="act of the administrator")

    async def _carry_out(self, fault: Fault) -> None:
        number = next(self._numbers)
        self._under_way[number] = str(fault)
        if fault.kind == REASSIGN:
            await self._reassign()
        elif fault.kind == CANCEL:
            await self._cancel()
        elif fault.kind == ELECT:
            await self._elect()
        elif fault.kind == DELETE:
            await self._delete()
        elif fault.kind == DRAIN:
            await self._drain(fault)
        elif fault.kind == MOVE:
            await self._moves.make(self._known_places(image_of(self._world)))
        elif fault.kind == PREFER:
            await self._prefer(fault)
        elif fault.kind == GIVE_BACK:
            await self._give_back(fault)
        del self._under_way[number]

    def unmet(self) -> list[str]:
        """What is not done yet, and partitions that are not as they were to be."""
        unmet = [f"the administrator is not done: {act}" for act in self._under_way.values()]
        image = image_of(self._world)
        for topic in image.topics.values():
            for partition in topic.partitions:
                if partition.adding_replicas or partition.removing_replicas:
                    moving = f"{topic.name}-{partition.partition} is still being reassigned"
                    unmet.append(f"{moving}: {_described(partition)}")
        for place, wanted in self._wanted.items():
            found = tuple(image.topics[place.topic].partitions[place.partition].replicas)
            if wanted is not None and found not in wanted:
                unmet.append(f"{place} has the replicas {found}, asked for were {sorted(map(str, wanted))}")
        return unmet

    # -- reassignments ------------------------------------------------------------------------------------------

    async def _reassign(self) -> None:
        image = image_of(self._world)
        nodes = [node for node in sorted(image.nodes) if node not in self._leaving]
        known = [place for place in self._known_places(image) if self._chance.random() < 0.6]
        wanted = {}
        for place in known:
            partition = image.topics[place.topic].partitions[place.partition]
            count = len(partition.replicas) - len(partition.adding_replicas)
            count = min(max(1, count + self._chance.choice((-1, 0, 0, 0, 1))), len(nodes))
            wanted[place] = with_a_readable_one(self._chance.sample(nodes, count), self._nodes)
        await self._alter(wanted)

    async def _cancel(self) -> None:
        image = image_of(self._world)
        moving = [place for place in self._known_places(image) if _is_moving(_partition(image, place))]
        await self._alter(dict.fromkeys(moving))

    def _known_places(self, image: MetadataImage) -> list[Place]:
        """Those of groups' offsets, too."""
        internal = [
            Place(topic.name, number)
            for topic in image.topics.values()
            if topic.internal
            for number in range(len(topic.partitions))
        ]
        return [*self._places, *internal]

    async def _alter(self, wanted: Mapping[Place, Replicas | None]) -> None:
        """Have partitions get these replicas; None gives a reassignment up."""
        if not wanted:
            return
        async with self._asking:
            self._say(f"asks for {_shown(wanted)}")
            request = {
                "timeout": TIMEOUT_MS,
                "allow_replication_factor_change": True,
                "topics": _topics(wanted, lambda place: {"replicas": wanted[place]}),
            }
            while True:
                answer = await self._try(ALTER_PARTITION_REASSIGNMENTS, 1, request)
                if answer is not None and ErrorCode(answer.error_code) not in TRY_AGAIN:
                    break
                for place, replicas in wanted.items():
                    self._unanswered.setdefault(place, set()).add(replicas)
            if answer.error_code:
                self._world.violate(f"reassignments are refused with {answer.error_code.name}")
            for topic in answer.responses:
                for row in topic.partitions:
                    place = Place(topic.name, row.partition_index)
                    self._on_altered(place, wanted[place], ErrorCode(row.error_code))

    def _on_altered(self, place: Place, replicas: Replicas | None, code: ErrorCode) -> None:
        self._say(f"{place} to {replicas}: {code.name}")
        if place not in self._places and code is ErrorCode.none:
            return  # what is a coordinator's grows by itself
        if place.topic == BRIEF and code is ErrorCode.unknown_topic_or_partition:
            return  # it has just been deleted
        possible = {replicas, *self._unanswered.get(place, ())}
        if code is ErrorCode.invalid_replica_assignment:
            self._wanted[place] = None  # a node is not registered (any more), or nobody could lead
        elif code is ErrorCode.no_reassignment_in_progress and replicas is None:
            if len(possible) > 1:
                self._wanted[place] = None
        elif code is not ErrorCode.none:
            self._world.violate(f"{place} cannot be reassigned to {replicas}: {code.name}")
        else:
            self._wanted[place] = None if None in possible else possible

    # -- leaders ------------------------------------------------------------------------------------------------

    async def _elect(self) -> None:
        request = {"election_type": 0, "topic_partitions": None, "timeout": TIMEOUT_MS}
        answer = await self._ask_until_told(ELECT_LEADERS, 2, request)
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                code = ErrorCode(row.error_code)
                self._say(f"preferred leader of {topic.topic}-{row.partition_id}: {code.name}")
                if code not in (ErrorCode.none, ErrorCode.preferred_leader_not_available):
                    self._world.violate(
                        f"the preferred leader of {topic.topic}-{row.partition_id}: {code.name}"
                    )

    async def _prefer(self, fault: Fault) -> None:
        """The target is to lead what its peer leads."""
        target, peer = self._node_id(fault.target), self._node_id(fault.peer)
        led = self._led_by(peer, target)
        await self._alter({place: (target, peer, *others) for place, others in led.items()})
        await self._elect()

    async def _give_back(self, fault: Fault) -> None:
        """The peer loses its replicas of what the target leads, and gets them again once they are deleted."""
        target, peer = self._node_id(fault.target), self._node_id(fault.peer)
        led, elects = self._led_by(target, peer), self._chance.random() < 0.5
        await self._alter(
            {
                place: (*others, target) if elects else (target, *others)
                for place, others in led.items()
                if others
            }
        )
        if elects:
            await self._elect()
        gives_up_at = self._world.now + DELETED_SECONDS_MAX
        while self._world.now < gives_up_at and self._has_any(fault.peer, led):
            await asyncio.sleep(0.005)
        await self._alter({place: (target, *others, peer) for place, others in led.items() if others})
        if elects:
            await self._elect()

    def _has_any(self, name: str, places: Iterable[Place]) -> bool:
        node = self._machines[name]
        assert isinstance(node, NodeMachine), name
        return node.replicas is not None and any(
            (replica.topic, replica.index) in places for replica in node.replicas.by_partition.values()
        )

    def _led_by(self, leader: int, other: int) -> dict[Place, Replicas]:
        """Partitions that `leader` leads and `other` has as well, with whoever else has them."""
        image, led = image_of(self._world), {}
        for place in self._places:
            record = _partition(image, place)
            if record.leader == leader and other in record.replicas and not _is_moving(record):
                led[place] = tuple(each for each in record.replicas if each not in (leader, other))
        return {} if self._leaving else led

    def _node_id(self, name: str) -> int:
        machine = self._machines[name]
        assert isinstance(machine, NodeMachine), name
        return machine.node_id

    # -- records that are deleted -------------------------------------------------------------------------------

    async def _delete(self) -> None:
        """Of each partition up to somewhere, unless it takes too long."""
        for place in self._places:
            end = self._history.high_watermarks.get(place, 0)
            offset = self._chance.choice((end, self._chance.randint(0, end)))
            if not offset or self._chance.random() < 0.3:
                continue
            self._history.on_delete(place, offset)
            partition = {"partition_index": place.partition, "offset": offset}
            topics = [{"name": place.topic, "partitions": [partition]}]
            for _ in range(DELETE_ATTEMPTS):
                starts = [(node, node.starts) for node in self._nodes]
                answer = await self._try(DELETE_RECORDS, 2, {"topics": topics, "timeout": TIMEOUT_MS})
                if answer is None:
                    continue
                row = answer.topics[0].partitions[0]
                code = ErrorCode(row.error_code)
                self._say(f"records of {place} before {offset}: {code.name}, {row.low_watermark}")
                if code is ErrorCode.none:
                    self._on_deleted(place, row.low_watermark, starts)
                    break
                if code not in DELETE_AGAIN:
                    self._world.violate(f"records of {place} before {offset} cannot be deleted: {code.name}")
                await asyncio.sleep(RETRY_SECONDS)

    def _on_deleted(self, place: Place, offset: int, starts: Iterable[tuple[NodeMachine, int]]) -> None:
        """Those that have heard of it forget it when their processes end, and are told again by one that has not. The
        answer may be old: who was started since it was asked for (`starts` are those at that time) may not have heard.
        """
        isr = _partition(image_of(self._world), place).isr
        heard = [(node, number) for node, number in starts if node.node_id in isr]
        self._history.on_deleted(
            place, offset, lambda: any(node.is_up and node.starts == number for node, number in heard)
        )

    # -- nodes that go ------------------------------------------------------------------------------------------

    async def _drain(self, fault: Fault) -> None:
        machine = self._machines[fault.target]
        assert isinstance(machine, NodeMachine), fault.target
        node_id = machine.node_id
        if self._leaving or node_id not in image_of(self._world).nodes:
            return
        self._leaving.add(node_id)
        await self._cordon(node_id, "*")
        if await self._empty(node_id):
            machine.is_away = True
            await self._stop(machine)
            if await self._remove(node_id):
                if fault.seconds >= FOR_GOOD:
                    return
                await asyncio.sleep(fault.seconds)
            machine.is_away = False
            machine.start()
        else:
            await self._cordon(node_id, None)
        self._leaving.discard(node_id)

    async def _stop(self, machine: NodeMachine) -> None:
        machine.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS_MAX):
                while machine.is_up and machine.is_stopping:
                    await asyncio.sleep(0.01)
        machine.kill()

    async def _remove(self, node_id: int) -> bool:
        """As `barnabas nodes remove` does it: once the node is fenced, and not if it has got replicas since.

        Until then it is cordoned, or it would be given new ones. Whether it was removed.
        """
        while not image_of(self._world).nodes[node_id].fenced:
            await asyncio.sleep(RETRY_SECONDS)
        async with self._asking:  # a wish from before comes before
            held = _state_of(image_of(self._world)).replicas_on(node_id)
            await self._cordon(node_id, None)
            if held:
                self._say(f"node {node_id} cannot be removed: it has {held}")
            else:
                await self._unregister(node_id)
        return not held

    async def _empty(self, node_id: int) -> bool:
        """By the plan of `barnabas nodes drain`; False if the others cannot hold what it has."""
        may_have_fewer = self._chance.random() < 0.5
        while True:
            state = _state_of(image_of(self._world))
            if not state.replicas_on(node_id):
                return True
            plan = plan_drain(state, node_id, allow_fewer=may_have_fewer)
            if plan.too_many_replicas or plan.no_room:
                self._say(f"node {node_id} cannot be emptied: {plan}")
                return False
            await self._alter({Place(move.topic, move.number): move.after for move in plan.reassignments})
            await asyncio.sleep(RETRY_SECONDS)

    async def _cordon(self, node_id: int, directories: str | None) -> None:
        operation = UNSET if directories is None else SET
        config = {"name": "cordoned.log.dirs", "config_operation": operation, "value": directories}
        resource = {
            "resource_type": BROKER_RESOURCE,
            "resource_name": str(node_id),
            "configs": [config],
        }
        while True:
            answer = await self._ask_until_told(
                INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
            )
            code = ErrorCode(answer.responses[0].error_code)
            self._say(f"cordoned.log.dirs of node {node_id} to {directories}: {code.name}")
            if code is ErrorCode.none:
                return
            if code not in TRY_AGAIN:
                self._world.violate(f"node {node_id} cannot be cordoned: {code.name}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _unregister(self, node_id: int) -> None:
        while True:
            answer = await self._ask_until_told(UNREGISTER_BROKER, 0, {"broker_id": node_id})
            code = ErrorCode(answer.error_code)
            self._say(f"node {node_id} is unregistered: {code.name}")
            if code in (ErrorCode.none, ErrorCode.broker_id_not_registered):
                return
            self._world.violate(f"node {node_id} cannot be unregistered: {code.name}")

    # -- asking -------------------------------------------------------------------------------------------------

    async def _ask_until_told(self, api_key: int, version: int, request: Mapping[str, Any]) -> Any:
        while True:
            answer = await self._try(api_key, version, request)
            if answer is not None and ErrorCode(getattr(answer, "error_code", 0)) not in TRY_AGAIN:
                return answer

    async def _try(self, api_key: int, version: int, request: Mapping[str, Any]) -> Any:
        """The answer; None, after a moment, where there is none."""
        try:
            answer = await self.client.ask_once(api_key, version, request)
        except (ConnectionError, Disconnected) as error:
            self._say(f"no answer to {api_key}: {error}")
            answer = None
        if answer is None or ErrorCode(getattr(answer, "error_code", 0)) in TRY_AGAIN:
            await asyncio.sleep(RETRY_SECONDS)
        return answer

    def _say(self, what: str) -> None:
        self._world.trace.say("administrator", what)


def _partition(image: MetadataImage, place: Place) -> PartitionRecord:
    return image.topics[place.topic].partitions[place.partition]


def _is_moving(partition: PartitionRecord) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _described(partition: PartitionRecord) -> str:
    return (
        f"replicas {list(partition.replicas)}, adding {list(partition.adding_replicas)}, removing "
        f"{list(partition.removing_replicas)}, ISR {list(partition.isr)}, leader {partition.leader}"
    )


def _shown(wanted: Mapping[Place, Replicas | None]) -> str:
    return ", ".join(f"{place} at {replicas or 'whatever it had'}" for place, replicas in wanted.items())


def _topics(places: Iterable[Place], more: Any) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append({"partition_index": place.partition, **more(place)})
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _state_of(image: MetadataImage) -> ClusterState:
    """As an operator's command has it."""
    nodes = tuple(
        Node(node_id, directories=())  # who is fenced comes back
        for node_id in sorted(image.nodes)
    )
    partitions = tuple(
        Partition(
            topic.name,
            partition.partition,
            tuple(partition.replicas),
            isr=tuple(partition.isr),
            leader=partition.leader,
            adding=tuple(partition.adding_replicas),
            removing=tuple(partition.removing_replicas),
        )
        for _, topic in sorted(image.topics.items())
        for partition in topic.partitions
    )
    return ClusterState(nodes, partitions)


def leftovers(nodes: Collection[NodeMachine], image: MetadataImage) -> list[str]:
    """Replicas that nodes have, in memory or on disk, and that the metadata give to others."""
    found = []
    for node in nodes:
        if node.replicas is None:
            continue
        due = {
            f"{topic.name}-{partition.partition}"
            for topic in image.topics.values()
            for partition in topic.partitions
            if node.node_id in partition.replicas
        }
        found += [
            f"{node.name} still has {replica.name} of the topic {replica.topic_id.hex()}"
            for replica in node.replicas.by_partition.values()
            if replica.name not in due or image.partition(replica.topic_id, replica.index) is None
        ]
        found += [
            f"{node.name} still has {path} on its disk"
            for path in node.directories()
            if (name := os.path.basename(path)) not in due
            and (node.name, name) not in node.world.trace.undeleted
        ]
    return found
