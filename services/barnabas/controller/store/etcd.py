"""The store of a cluster: etcd 3.4 or later, over its own gRPC API.

The messages and stubs come from `aetcd`; its client is not used, because it knows one endpoint only and its watch
neither groups events by revision nor resumes. Here one channel is open at a time. When its member is gone or has
lost the quorum, reads and watches go on with the next endpoint; a write whose answer was lost is reported as a
StoreError, for only the caller knows whether it may be made twice.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import grpc
import grpc.aio
from aetcd import rpc

from barnabas.controller import limits
from barnabas.controller.store.protocol import (
    TRANSACTION_OPERATIONS_MAX,
    Change,
    Changes,
    Compare,
    CompareFailed,
    DeletePrefix,
    KeyAbsent,
    Lease,
    LeaseLost,
    ModRevisionEquals,
    Operation,
    Put,
    RevisionCompacted,
    Snapshot,
    StoredValue,
    StoreError,
    ValueEquals,
)
from barnabas.rpc.unary_calls import answer_of, unavailable

SNAPSHOT_PAGE_KEYS: Final = 1000
"""Keys read per call while a snapshot is taken."""


_CHANNEL_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", limits.ETCD_KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.ETCD_KEEPALIVE_TIMEOUT_MS),
    # The time-out that decides: a probe counts as any ping of HTTP/2 (a minute if it is not set).
    ("grpc.http2.ping_timeout_ms", limits.ETCD_KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", limits.ETCD_RECEIVE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_REQUIRE_LEADER: Final = (("hasleader", "true"),)
"""Makes a member that was cut off from the quorum end the stream instead of staying silent."""

END_OF_STREAM: Final = grpc.aio.EOF  # type: ignore[attr-defined]

_TRY_NEXT: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class EtcdStore:
    """Owner of the connection to etcd. All keys live under `namespace`, so clusters can share one etcd."""

    def __init__(self, endpoints: Sequence[str], namespace: str = "barnabas/") -> None:
        assert endpoints, "at least one etcd endpoint"
        self._endpoints = [endpoint.removeprefix("http://").rstrip("/") for endpoint in endpoints]
        self._namespace = namespace
        self._current = 0
        self._channel: grpc.aio.Channel | None = None
        self._closing = False
        self._retired: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        self._closing = False
        self._channel = self._dial()
        try:
            await self._read("KVStub", "Range", rpc.RangeRequest(key=self._key("cluster"), count_only=True))
        except StoreError:
            await self.close()
            raise

    async def close(self) -> None:
        self._closing = True
        for step in self._watching:
            step.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)
        if self._retired:
            await asyncio.gather(*self._retired)

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        assert len(operations) <= TRANSACTION_OPERATIONS_MAX, f"{len(operations)} operations in a transaction"
        request = rpc.TxnRequest(
            compare=[self._compare(compare) for compare in compares],
            success=[self._operation(operation) for operation in operations],
        )
        response = await self._call("KVStub", "Txn", request)
        if not response.succeeded:
            raise CompareFailed(f"the store changed: one of {list(compares)} does not hold")
        return int(response.header.revision)

    async def snapshot(self, prefix: str = "") -> Snapshot:
        start, end = self._range(prefix)
        entries: dict[str, StoredValue] = {}
        revision = 0
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=SNAPSHOT_PAGE_KEYS, revision=revision)
            response = await self._read("KVStub", "Range", request)
            revision = revision or int(response.header.revision)
            for entry in response.kvs:
                entries[self._name(entry.key)] = StoredValue(entry.value, entry.mod_revision)
            if not response.more:
                return Snapshot(revision, entries)
            start = response.kvs[-1].key + b"\0"

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Changes]:
        start, end = self._range(prefix)
        next_revision = from_revision
        pause = limits.ETCD_RECONNECT_SECONDS_MIN
        while True:
            channel = self._opened()
            create = rpc.WatchCreateRequest(key=start, range_end=end, start_revision=next_revision)
            call = rpc.WatchStub(channel).Watch(metadata=_REQUIRE_LEADER)
            try:
                await self._unless_closed(call.write(rpc.WatchRequest(create_request=create)))
                while (response := await self._unless_closed(call.read())) is not END_OF_STREAM:
                    if response.compact_revision:
                        raise RevisionCompacted(next_revision, int(response.compact_revision))
                    if response.canceled:
                        break
                    pause = limits.ETCD_RECONNECT_SECONDS_MIN
                    for changes in self._by_revision(response.events):
                        next_revision = changes.revision + 1
                        yield changes
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                self._opened()
                self._turn_from(channel)
                pause = await self._pause(pause, error)
            except asyncio.CancelledError:
                if self._closing and not _is_being_cancelled():
                    self._opened()
                raise
            finally:
                call.cancel()

    async def grant_lease(self, ttl_ms: int) -> Lease:
        request = rpc.LeaseGrantRequest(TTL=-(-ttl_ms // 1000))
        response = await self._call("LeaseStub", "LeaseGrant", request)
        return Lease(int(response.ID), int(response.TTL) * 1000)

    async def keep_lease_alive(self, lease_id: int) -> None:
        channel = self._opened()
        call = rpc.LeaseStub(channel).LeaseKeepAlive(metadata=_REQUIRE_LEADER)
        try:
            # gRPC's own time-out ends no stream whose channel is closed before it has begun.
            async with asyncio.timeout(limits.ETCD_LEASE_SECONDS_MAX):
                await answer_of(call.write(rpc.LeaseKeepAliveRequest(ID=lease_id)))
                response = await answer_of(call.read())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError) as error:
            self._turn_from(channel)
            raise self._translate(error) from error
        finally:
            call.cancel()
        if response is END_OF_STREAM:
            raise StoreError("etcd ended the keep-alive stream")
        if response.TTL <= 0:
            raise LeaseLost(f"lease {lease_id} is gone")

    async def revoke_lease(self, lease_id: int) -> None:
        try:
            await self._call("LeaseStub", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease_id))
        except LeaseLost:
            return

    async def _unless_closed(self, step: Awaitable[Any]) -> Any:
        """Await one step of a watch, which `close` cancels: gRPC leaves a call hanging that has not begun yet."""
        running = asyncio.ensure_future(step)
        self._watching.add(running)
        try:
            await asyncio.wait({running})
            if running.cancelled() and not self._closing:
                raise unavailable("another call gave the endpoint up")
            return running.result()
        finally:
            running.cancel()
            self._watching.discard(running)

    async def _read(self, stub: str, method: str, request: Any) -> Any:
        """A call that changes nothing: tried at every endpoint once more than there are endpoints."""
        for _ in self._endpoints:
            try:
                return await self._call(stub, method, request)
            except StoreError as error:
                cause = error.__cause__
                if not isinstance(cause, grpc.aio.AioRpcError) or cause.code() not in _TRY_NEXT:
                    raise
        return await self._call(stub, method, request)

    async def _call(self, stub: str, method: str, request: Any) -> Any:
        channel = self._opened()
        try:
            call = getattr(getattr(rpc, stub)(channel), method)
            return await answer_of(call(request, timeout=limits.ETCD_REQUEST_SECONDS_MAX))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            if isinstance(error, grpc.aio.AioRpcError) and error.code() in _TRY_NEXT:
                self._turn_from(channel)
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> StoreError:
        if isinstance(error, TimeoutError):
            what = "DEADLINE_EXCEEDED"
        elif not isinstance(error, grpc.aio.AioRpcError):
            return StoreError(f"etcd cannot be used: {error}")
        elif "requested lease not found" in (error.details() or ""):
            return LeaseLost(f"etcd: {error.details()}")
        else:
            what = f"{error.code().name} {error.details()}"
        return StoreError(
            f"etcd at {', '.join(self._endpoints)}: {what}: check that it runs and that the endpoints are right"
        )

    def _dial(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self._endpoints[self._current], options=_CHANNEL_OPTIONS)

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise StoreError("the connection to etcd is closed")
        return self._channel

    def _turn_from(self, failed: grpc.aio.Channel) -> None:
        """Go on with the next endpoint, unless another call did so already."""
        if self._channel is not failed or self._closing or len(self._endpoints) == 1:
            return
        self._current = (self._current + 1) % len(self._endpoints)
        self._channel = self._dial()
        task = asyncio.ensure_future(failed.close(None))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def _pause(self, seconds: float, reason: Exception) -> float:
        if isinstance(reason, grpc.aio.AioRpcError) and reason.code() is grpc.StatusCode.UNAUTHENTICATED:
            raise self._translate(reason) from reason
        await asyncio.sleep(seconds)
        return min(seconds * 2, limits.ETCD_RECONNECT_SECONDS_MAX)

    def _by_revision(self, events: Iterable[Any]) -> Iterable[Changes]:
        for revision, group in groupby(events, key=lambda event: int(event.kv.mod_revision)):
            changes = tuple(
                Change(self._name(event.kv.key), None if event.type == rpc.Event.DELETE else event.kv.value)
                for event in group
            )
            yield Changes(revision, changes)

    def _key(self, key: str) -> bytes:
        return (self._namespace + key).encode()

    def _name(self, key: bytes) -> str:
        return key.decode()[len(self._namespace) :]

    def _range(self, prefix: str) -> tuple[bytes, bytes]:
        start = self._key(prefix)
        assert start, "a namespace or a prefix"
        return start, start[:-1] + bytes([start[-1] + 1])

    def _compare(self, compare: Compare) -> Any:
        equals = functools.partial(rpc.Compare, key=self._key(compare.key), result=rpc.Compare.EQUAL)
        match compare:
            case KeyAbsent():
                return equals(target=rpc.Compare.CREATE, create_revision=0)
            case ModRevisionEquals():
                return equals(target=rpc.Compare.MOD, mod_revision=compare.revision)
            case ValueEquals():
                return equals(target=rpc.Compare.VALUE, value=compare.value)

    def _operation(self, operation: Operation) -> Any:
        match operation:
            case Put(key, value, lease_id):
                put = rpc.PutRequest(key=self._key(key), value=value, lease=lease_id)
                return rpc.RequestOp(request_put=put)
            case DeletePrefix(prefix):
                start, end = self._range(prefix)
                return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=start, range_end=end))
            case _:
                delete = rpc.DeleteRangeRequest(key=self._key(operation.key))
                return rpc.RequestOp(request_delete_range=delete)


def _is_being_cancelled() -> bool:
    """True when the task itself was cancelled, and not only the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
