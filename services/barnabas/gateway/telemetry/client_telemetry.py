"""Client telemetry (KIP-714): which client instances push metrics, how often they may, and where their pushes go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.request import Request
from barnabas.gateway.telemetry.export import TelemetryForwarder, with_resource_attributes
from barnabas.gateway.telemetry.metrics import TelemetryMetrics
from barnabas.gateway.telemetry.subscriptions import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
    Assignment,
    Configs,
    assign,
    instance_text,
    parse_subscriptions,
)
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.compression import Compression, decompress

ACCEPTED_COMPRESSIONS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""What clients may push, the best first; they may also push without compression."""

_RESERVED_IDS: Final = (bytes(16), bytes(15) + b"\1")
_ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of every client until authentication is served."""

_Unfold = Callable[[int, bytes, Mapping[str, str]], bytes]
"""(compression, metrics, attributes of their client): the metrics as they are handed on."""

_ASK_AGAIN: Final = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
"""After these a client must ask for its subscription, and need not wait for the interval."""


@dataclass(slots=True)
class _Instance:
    """A client instance on one connection."""

    assignment: Assignment
    got_at_ms: float | None = None
    pushed_at_ms: float | None = None
    has_just_subscribed: bool = False
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.none
    expires_at_ms: float = field(default=0.0)

    def may_get(self, now_ms: float) -> bool:
        times = [at for at in (self.got_at_ms, self.pushed_at_ms) if at is not None]
        return not times or now_ms - max(times) >= self.assignment.push_interval_ms

    def may_push(self, now_ms: float) -> bool:
        """A push may follow a subscription at once, for clients spread their first pushes over the interval."""
        if self.pushed_at_ms is None or self.has_just_subscribed:
            return True
        return now_ms - self.pushed_at_ms >= self.assignment.push_interval_ms


class ClientTelemetry:
    """Owner of the client instances that this gateway has heard of, and of the way out for their metrics.

    An instance is known by its id and its connection, as each Kafka broker knows its own: through another gateway, or
    a new connection, it is a new one. Its subscription id is the same everywhere, so its pushes are accepted there.
    """

    def __init__(
        self,
        environment: Environment,
        telemetry_max_bytes: int,
        counts: TelemetryMetrics,
        forwarder: TelemetryForwarder | None = None,
    ) -> None:
        self.counts = counts
        self.telemetry_max_bytes = telemetry_max_bytes
        self._environment = environment
        self._forwarder = forwarder
        self._instances: OrderedDict[tuple[int, bytes], _Instance] = OrderedDict()
        self._configs: Configs = {}
        self._subscriptions = parse_subscriptions(self._configs)

    @property
    def has_receiver(self) -> bool:
        """Whether pushed metrics go anywhere; clients are shown the two requests only then."""
        return self._forwarder is not None

    def subscribe(self, request: Request, client_instance_id: bytes | None) -> tuple[bytes, Assignment]:
        """The instance's id, a new one where it has none, and what it is to push.

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED when it asks before its interval is over.
        """
        if client_instance_id is None or client_instance_id == bytes(16):
            client_instance_id = self._environment.new_id().bytes
        instance = self._instance(request, client_instance_id)
        now_ms = self._now_ms()
        if not instance.may_get(now_ms) and instance.last_error not in _ASK_AGAIN:
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.throttling_quota_exceeded)
        instance.got_at_ms = now_ms
        instance.has_just_subscribed = True
        instance.last_error = ErrorCode.none
        return client_instance_id, instance.assignment

    async def push(self, request: Request) -> None:
        """Take what the client pushed. It is queued, not delivered, when this returns.

        Raises KafkaError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD.
        """
        body = request.body
        client_instance_id = body.client_instance_id.bytes if body.client_instance_id else bytes(16)
        if client_instance_id in _RESERVED_IDS:
            raise KafkaError(ErrorCode.invalid_request)
        instance = self._instance(request, client_instance_id)
        try:
            self._check_push(request, instance)
            if body.metrics:
                await self._forward(request, client_instance_id)
            instance.last_error = ErrorCode.none
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = body.terminating

    def _check_push(self, request: Request, instance: _Instance) -> None:
        body, now_ms = request.body, self._now_ms()
        if instance.terminating:
            raise KafkaError(ErrorCode.invalid_request)
        if instance.may_push(now_ms):
            instance.pushed_at_ms = now_ms
            instance.has_just_subscribed = False
        elif not body.terminating:
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.throttling_quota_exceeded)
        if body.subscription_id != instance.assignment.subscription_id:
            self.counts.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.unknown_subscription_id)
        if body.compression_type not in list(Compression):
            raise KafkaError(ErrorCode.unsupported_compression_type)
        if len(body.metrics) > self.telemetry_max_bytes:
            raise KafkaError(ErrorCode.telemetry_too_large)

    async def _forward(self, request: Request, client_instance_id: bytes) -> None:
        attributes = {
            **_attributes(request, client_instance_id),
            "principal": _ANONYMOUS,
            "gateway_id": request.parts.gateway_id,
        }
        unfold = (request.body.compression_type, request.body.metrics, attributes)
        try:
            # What nobody receives must be whole all the same, as in Kafka.
            unfolded: _Unfold = _unfolded if self._forwarder is not None else _decompressed
            if len(request.body.metrics) > limits.TELEMETRY_INLINE_BYTES_MAX:
                message = await self._environment.threads.run(unfolded, *unfold)
            else:
                message = unfolded(*unfold)
        except KafkaError as error:
            self.counts.invalid += 1
            raise KafkaError(ErrorCode.invalid_record) from error
        if not message or self._forwarder is None:
            return  # no resource at all: nothing was measured; or nobody to hand it to
        if self._forwarder.offer(message):
            self.counts.accepted += 1
        else:
            self.counts.dropped["queue_full"] += 1

    def _instance(self, request: Request, client_instance_id: bytes) -> _Instance:
        """The instance, with the assignment that is right now: another assignment starts it anew."""
        configs = request.image.configs
        if configs is not self._configs:
            self._configs, self._subscriptions = configs, parse_subscriptions(configs)
        attributes = _attributes(request, client_instance_id)
        assignment = assign(self._subscriptions, client_instance_id, attributes)
        key, now_ms = (request.client.connection_id, client_instance_id), self._now_ms()
        instance = self._instances.pop(key, None)
        if instance is None or instance.expires_at_ms <= now_ms or instance.assignment != assignment:
            instance = _Instance(assignment)
        keep_ms = max(limits.TELEMETRY_INSTANCE_EXPIRY_MS, 3 * assignment.push_interval_ms)
        instance.expires_at_ms = now_ms + keep_ms
        self._instances[key] = instance
        self._forget(now_ms)
        return instance

    def _forget(self, now_ms: float) -> None:
        """Drop instances that were silent for too long, and the longest silent ones when there are too many."""
        while True:
            self.counts.instances = len(self._instances)
            oldest = next(iter(self._instances.values()))
            if len(self._instances) <= limits.TELEMETRY_INSTANCES_MAX and oldest.expires_at_ms > now_ms:
                return
            self._instances.popitem(last=False)

    def _now_ms(self) -> float:
        return self._environment.clock.monotonic() * 1000


def _attributes(request: Request, client_instance_id: bytes) -> Mapping[str, str]:
    """What subscriptions match on, and what pushed metrics are marked with."""
    client = request.client
    attributes = {
        CLIENT_INSTANCE_ID: instance_text(client_instance_id),
        CLIENT_SOFTWARE_NAME: client.software.name,
        CLIENT_SOFTWARE_VERSION: client.software.version,
        CLIENT_SOURCE_ADDRESS: client.host,
        CLIENT_SOURCE_PORT: str(client.port),
    }
    if request.header.client_id is not None:
        attributes[CLIENT_ID] = request.header.client_id
    return attributes


def _decompressed(compression: int, metrics: bytes, _: Mapping[str, str]) -> bytes:
    """The pushed metrics. Raises KafkaError."""
    return decompress(compression, metrics, limits.TELEMETRY_UNFOLDED_BYTES_MAX)


def _unfolded(compression: int, metrics: bytes, attributes: Mapping[str, str]) -> bytes:
    """The pushed metrics as the collector takes them. Raises KafkaError."""
    return with_resource_attributes(_decompressed(compression, metrics, attributes), attributes)
