"""One term of the active controller."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from barnabas.controller import limits
from barnabas.controller.config import ControllerConfig
from barnabas.controller.core.coordinators import register_coordinator, remove_coordinator
from barnabas.controller.core.decision import Decision
from barnabas.controller.core.elect_leaders import elect_preferred_leaders, elect_unclean_leaders
from barnabas.controller.core.features import finalize_release_levels
from barnabas.controller.core.gateways import register_gateway, remove_gateway
from barnabas.controller.core.nodes import fence_node, on_process_ended, register_node
from barnabas.controller.core.quorum import describe_quorum
from barnabas.controller.core.terms import begin_term
from barnabas.controller.core.unregistration import unregister_node
from barnabas.controller.counts import ControllerCounts
from barnabas.controller.election import ELECTION_KEY, Election, Leadership, LeadershipLost
from barnabas.controller.fanout import Fanout, Receiver
from barnabas.controller.internal_growth import grow_when_nodes_join
from barnabas.controller.limits import TAKEOVER_GRACE_MS
from barnabas.controller.lost_services import LostServices
from barnabas.controller.presence import PRESENCE_PREFIX
from barnabas.controller.sessions import Kind, Member, Sessions
from barnabas.controller.store.protocol import Store, StoreError
from barnabas.controller.unasked_elections import elect_every
from barnabas.controller.whole_decisions import settle_decision
from barnabas.controller.writer import MetadataWriter, TooManyRequests
from barnabas.kernel.cancellation import run_apart
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.messages.controller_pb2 import (
    DescribeQuorumResponse,
    MetadataDelta,
    ServiceHeartbeatRequest,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    WatchRequest,
)
from barnabas.messages.metadata_pb2 import ClusterRecord, MetadataRecord
from barnabas.metadata.history import HistoryRefused, check_continues
from barnabas.metadata.image import CLUSTER_KEY, MetadataImage

if TYPE_CHECKING:
    import uuid


log = get_logger("controller.active")


class WrongCluster(Exception):
    """The store or the caller belongs to another cluster."""


class ActiveController:
    """Owner of the writer, the receivers and the sessions, from one election to the next."""

    def __init__(
        self,
        store: Store,
        leadership: Leadership,
        image: MetadataImage,
        config: ControllerConfig,
        environment: Environment,
        counts: ControllerCounts,
    ) -> None:
        self._counts = counts
        self._config = config
        self._environment = environment
        self._elected_at_revision = leadership.revision
        self._fanout = Fanout()
        self.writer = MetadataWriter(store, leadership, image, self._fanout.publish, counts)
        self._sessions = Sessions(
            {
                Kind.NODE: config.broker_session_timeout_ms,
                Kind.GATEWAY: config.gateway_session_timeout_ms,
                Kind.COORDINATOR: config.coordinator_session_timeout_ms,
            },
            self._on_session_expired,
            # With the embedded store the former controller was a process of this one's machine, and has ended.
            TAKEOVER_GRACE_MS if config.etcd_endpoints else 0,
        )
        network = environment.network
        self._lost_nodes = LostServices(
            Kind.NODE.value, network, self._address_of_awaited_node, self._on_node_ended
        )
        self._lost_coordinators = LostServices(
            Kind.COORDINATOR.value,
            network,
            self._address_of_awaited_coordinator,
            self._hand_over_coordinator,
        )
        self._nothing_to_take_over: dict[int, tuple[int, set[int], list[str]]] = {}
        """By node that is away: the image's revision, the nodes present, and the gateways gone with it, when nothing of
        it could be taken over.
        """
        self._unasked: set[asyncio.Task[None]] = set()
        self.is_ready = False

    @property
    def image(self) -> MetadataImage:
        return self.writer.image

    async def run(self, election: Election, leadership: Leadership) -> None:
        """Lead until cancelled. Raises LeadershipLost, or WrongCluster when the config names another cluster."""
        try:
            await run_apart(self._lead(election, leadership))
        except ExceptionGroup as group:
            expected = group.subgroup((LeadershipLost, WrongCluster))
            if expected is None or len(expected.exceptions) < len(group.exceptions):
                raise
            raise expected.exceptions[0] from None
        finally:
            self.is_ready = False
            self._sessions.close()
            self._lost_nodes.close()
            self._lost_coordinators.close()
            self._fanout.end_all("this controller stepped down")
            for task in self._unasked:
                task.cancel()

    async def _lead(self, election: Election, leadership: Leadership) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run(), name="metadata writer")
            tasks.create_task(election.keep(leadership), name="lease")
            tasks.create_task(self._sessions.watch_for_silence(), name="silent services")
            await self._prepare()
            self._sessions.restore(self.image)
            self.is_ready = True
            for node in self.image.live_nodes():
                self._lost_nodes.look_for(node.node_id)
            for coordinator_id in self.image.coordinators:
                self._lost_coordinators.look_for_later(coordinator_id, limits.FIRST_LOOK_SECONDS)
            self._begin_what_nobody_asks_for(tasks)

    async def watch(self, request: WatchRequest) -> AsyncGenerator[MetadataDelta]:
        """Register the caller, then everything it must know.

        Raises WrongCluster, HistoryRefused, KafkaError for a bad registration, AlreadyRegistered, LeadershipLost,
        StreamEnded.
        """
        await self._confirm()  # a controller that was deposed without knowing has no say
        if request.cluster_id and request.cluster_id != self.image.cluster_id:
            wrong = (
                f"this is cluster {self.image.cluster_id}, but the caller's data belongs to cluster "
                f"{request.cluster_id}: point it at its own cluster, or give it an empty directory"
            )
            raise HistoryRefused(wrong) if request.known_revision else WrongCluster(wrong)
        check_continues(self.image, request.known_revision, request.known_term_id)
        receiver = Receiver(self._environment.clock)
        member, incarnation_id = _member(request)
        try:
            if member is not None:
                is_known = member.kind is Kind.NODE and int(member.name) in self.image.nodes
                await self._sessions.attach(member, incarnation_id, receiver, is_known=is_known)
                await self._register(request)
                log.info("registered", kind=member.kind.value, name=member.name)
            self._fanout.add(receiver, self.image)
            async for delta in receiver.deltas():
                yield delta
        finally:
            self._fanout.discard(receiver)
            if member is not None:
                self._sessions.detach(member, receiver)
                if self._sessions.is_awaited(member):
                    self._look_for(member)

    def heard_from(self, request: ServiceHeartbeatRequest) -> bool:
        """A service is alive; False when it is not registered here and has to do that first."""
        match request.WhichOneof("service"):
            case "node_id":
                member = _node_member(request.node_id)
            case "gateway_id":
                member = Member(Kind.GATEWAY, request.gateway_id)
            case "coordinator_id":
                member = Member(Kind.COORDINATOR, request.coordinator_id)
            case None:
                return False
        if request.leaving:
            is_known = self._sessions.on_leaving(member, request.incarnation_id)
            if is_known and member.kind is Kind.COORDINATOR:
                self._begin(self._hand_over_coordinator(member.name))
            if is_known and member.kind is Kind.GATEWAY:
                self._begin(self._forget_leaving_gateway(member.name))
        return self._sessions.heard_from(member, request.incarnation_id)

    def present_nodes(self, image: MetadataImage) -> set[int]:
        """The nodes that may be handed something now: each is there, and was heard from lately."""
        return {
            node.node_id
            for node in image.live_nodes()
            if self._sessions.is_present(_node_member(node.node_id), node.incarnation_id)
        }

    def just_came_back(self) -> list[int]:
        """The nodes that came back a moment ago, in that order: many clients have no connection to them yet."""
        return [int(name) for name in self._sessions.just_came_back(Kind.NODE)]

    async def unregister_broker(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """Forget a storage node; a process of it that is still there has to register anew.

        Raises KafkaError BROKER_ID_NOT_REGISTERED, TooManyRequests, LeadershipLost.
        """
        response = await self.writer.submit(lambda image: unregister_node(image, request))
        self._sessions.end_stream(_node_member(request.node_id), "this node was unregistered: register again")
        return response

    def describe_quorum(self, leader_id: int, voters: Mapping[int, str]) -> DescribeQuorumResponse:
        """How far each copy of the metadata is; `voters` are the controllers that are there, by id."""
        nodes = self._sessions.attached(Kind.NODE)
        return describe_quorum(
            leader_id=leader_id,
            elected_at_revision=self._elected_at_revision,
            revision=self.image.revision,
            voters=voters,
            observers=[(int(name), receiver.progress) for name, receiver in nodes],
            now_ms=self._environment.clock.now_ms(),
        )

    async def _confirm(self) -> None:
        """Serve no image of a controller that was deposed without knowing. Raises LeadershipLost."""
        try:
            await self.writer.confirm()
        except StoreError as error:
            raise LeadershipLost(f"the metadata store does not answer: {error}") from error

    async def _register(self, request: WatchRequest) -> None:
        match request.WhichOneof("registration"):
            case "node":
                await self.writer.submit(lambda image: register_node(image, request.node))
            case "gateway":
                await self.writer.submit(lambda image: register_gateway(image, request.gateway))
            case "coordinator":
                await self.writer.submit(
                    lambda image: register_coordinator(
                        image,
                        request.coordinator,
                        image.coordinators.keys() - self._present_coordinators(image),
                    )
                )

    async def _prepare(self) -> None:
        """Begin the term; name the cluster and finalize features where that was never done."""
        term_id = str(self._environment.new_id())
        now_ms = self._environment.clock.now_ms()
        await self.writer.submit(lambda image: begin_term(image, term_id, now_ms))
        wanted = self._config.cluster_id
        if not self.image.cluster_id:
            cluster = ClusterRecord(cluster_id=wanted or new_cluster_id(self._environment.new_id))
            record = MetadataRecord(key=CLUSTER_KEY, cluster=cluster)
            await self.writer.submit(lambda image: Decision((record,), None))
        elif wanted and wanted != self.image.cluster_id:
            raise WrongCluster(
                f"cluster.id={wanted}, but the metadata is of cluster {self.image.cluster_id}: "
                "leave the setting out, or use the right store"
            )
        await self.writer.submit(finalize_release_levels)

    def _begin_what_nobody_asks_for(self, tasks: asyncio.TaskGroup) -> None:
        config, clock = self._config, self._environment.clock
        grow = grow_when_nodes_join(self.writer, config.defaults)
        tasks.create_task(grow, name="internal topics")
        seconds = config.unclean_leader_election_interval_ms / 1000
        due = elect_every(seconds, elect_unclean_leaders, self.writer, clock)
        tasks.create_task(due, name="unclean elections")
        if config.auto_leader_rebalance_enable:
            seconds = config.leader_imbalance_check_interval_seconds
            due = elect_every(seconds, elect_preferred_leaders, self.writer, clock)
            tasks.create_task(due, name="preferred leaders")

    def _look_for(self, member: Member) -> None:
        """It is away, and others could go on with what it did."""
        match member.kind:
            case Kind.NODE:
                self._lost_nodes.look_for(int(member.name))
            case Kind.COORDINATOR:
                self._lost_coordinators.look_for(member.name)

    def _address_of_awaited_node(self, node_id: int) -> str | None:
        node = self.image.nodes.get(node_id)
        if node is None or node.fenced or not self._sessions.is_awaited(_node_member(node_id)):
            return None
        return node.address

    async def _on_node_ended(self, node_id: int) -> None:
        """What others can take over of a node that is awaited, they do at once.

        That takes a look at all partitions, and is asked five times a second: where nothing could be taken over, nobody
        looks again until the metadata or those that are present are others.
        """
        seen = self.image.revision, self.present_nodes(self.image), self._gateways_gone_with(node_id)
        if self._nothing_to_take_over.get(node_id) == seen:
            return

        def decide(image: MetadataImage) -> Decision[None]:
            if not self._sessions.is_awaited(_node_member(node_id)):
                return Decision((), None)  # it came back while this waited to be decided
            gateways = self._gateways_gone_with(node_id)
            present, came_back = self.present_nodes(image), self.just_came_back()
            return on_process_ended(image, node_id, present, came_back=came_back, gateways=gateways)

        if not decide(self.image).records:
            self._nothing_to_take_over[node_id] = seen
            return
        with contextlib.suppress(TooManyRequests, LeadershipLost):
            await self.writer.submit(decide)

    def _address_of_awaited_coordinator(self, coordinator_id: str) -> str | None:
        known = self.image.coordinators.get(coordinator_id)
        is_awaited = self._sessions.is_awaited(Member(Kind.COORDINATOR, coordinator_id))
        return known.address if known is not None and is_awaited else None

    async def _hand_over_coordinator(self, coordinator_id: str) -> None:
        """The coordinator is about to stop, or its process has ended: others own at once what it owned. While no other
        is present it keeps that, for it may come back.
        """

        def decide(image: MetadataImage) -> Decision[None]:
            if not self._sessions.is_going(Member(Kind.COORDINATOR, coordinator_id)):
                return Decision((), None)  # it came back while this waited to be decided
            heirs = self._present_coordinators(image) - {coordinator_id}
            return remove_coordinator(image, coordinator_id, heirs)

        if decide(self.image).records:
            with contextlib.suppress(TooManyRequests, LeadershipLost):  # it is asked for again
                await self.writer.submit(decide)

    async def _forget_leaving_gateway(self, gateway_id: str) -> None:
        """The gateway is about to stop: clients are told of others. Of one in a node's process they are told of nothing
        else, for it keeps its address (`barnabas.gateway.clients.own_gateways`).
        """

        def decide(image: MetadataImage) -> Decision[None]:
            gateway = image.gateways.get(gateway_id)
            is_going = self._sessions.is_going(Member(Kind.GATEWAY, gateway_id))
            if gateway is None or gateway.HasField("node_id") or not is_going:
                return Decision((), None)
            return remove_gateway(image, gateway_id)

        if decide(self.image).records:
            with contextlib.suppress(TooManyRequests, LeadershipLost):  # it is asked for again
                await self.writer.submit(decide)

    def _present_coordinators(self, image: MetadataImage) -> set[str]:
        """Those that may be handed something now, as `present_nodes`."""
        return {
            name
            for name, each in image.coordinators.items()
            if self._sessions.is_present(Member(Kind.COORDINATOR, name), each.incarnation_id)
        }

    def _gateways_gone_with(self, node_id: int) -> list[str]:
        """The gateways in the process of a node that has ended; one that has a stream is in its next process."""
        return [
            gateway.gateway_id
            for gateway in self.image.gateways.values()
            if gateway.HasField("node_id")
            and gateway.node_id == node_id
            and not self._sessions.is_attached(Member(Kind.GATEWAY, gateway.gateway_id))
        ]

    def _on_session_expired(self, member: Member) -> None:
        self._counts.timed_out_nodes += member.kind is Kind.NODE
        self._begin(self._remove(member))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Do what nobody waits for, until this term is over."""
        task = asyncio.ensure_future(work)
        self._unasked.add(task)
        task.add_done_callback(self._unasked.discard)

    async def _remove(self, member: Member) -> None:
        def decide(image: MetadataImage) -> Decision[None]:
            if self._sessions.is_attached(member):
                return Decision((), None)
            match member.kind:
                case Kind.NODE:
                    return fence_node(image, int(member.name))
                case Kind.GATEWAY:
                    return remove_gateway(image, member.name)
                case Kind.COORDINATOR:
                    present = self._present_coordinators(image)
                    return remove_coordinator(image, member.name, present or None)

        while True:
            try:
                return await self.writer.submit(decide)
            except TooManyRequests:
                await asyncio.sleep(limits.EXPIRY_RETRY_SECONDS)
            except LeadershipLost:
                return None


async def load_image(store: Store, leadership: Leadership) -> MetadataImage:
    """The image of all that is stored, once what a former controller decided is. Raises StoreError."""
    await settle_decision(store, leadership.compare)
    snapshot = await store.snapshot()
    records = [
        MetadataRecord.FromString(entry.value)
        for key, entry in snapshot.entries.items()
        if key != ELECTION_KEY and not key.startswith(PRESENCE_PREFIX)
    ]
    return MetadataImage().apply(records, snapshot.revision)


def new_cluster_id(new_id: Callable[[], uuid.UUID]) -> str:
    """A random cluster id as Kafka writes them: 16 bytes as 22 characters of URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(new_id().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # or tools would take it for an option
            return text


def _node_member(node_id: int) -> Member:
    return Member(Kind.NODE, str(node_id))


def _member(request: WatchRequest) -> tuple[Member | None, str]:
    match request.WhichOneof("registration"):
        case "node":
            return _node_member(request.node.node_id), request.node.incarnation_id
        case "gateway":
            return Member(Kind.GATEWAY, request.gateway.gateway_id), request.gateway.incarnation_id
        case "coordinator":
            coordinator = request.coordinator
            return Member(Kind.COORDINATOR, coordinator.coordinator_id), coordinator.incarnation_id
        case None:
            return None, ""
