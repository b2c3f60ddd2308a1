"""gRPC channels, and the limits that every link between services has. Addresses are `host:port` or `unix:/path`."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from barnabas.kernel.tracing import is_tracing
from barnabas.rpc import limits

OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.http2.max_frame_size", limits.HTTP2_FRAME_BYTES_MAX),
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    # A probe counts as any ping of HTTP/2, whose own time-out (a minute if it is not set) is the one that decides.
    ("grpc.http2.ping_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", limits.KEEPALIVE_MS // 2),
)
"""Of servers and channels."""


def _client_interceptors() -> list[Any]:
    if not is_tracing():
        return []
    from barnabas.rpc.traced_calls import CallerTraces

    return [CallerTraces()]


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to `address`, which reconnects by itself for as long as it is open."""
    return grpc.aio.insecure_channel(
        address,
        interceptors=_client_interceptors(),
        options=[
            *OPTIONS,
            ("grpc.initial_reconnect_backoff_ms", limits.RECONNECT_BACKOFF_MS_MIN),
            # What gRPC makes of this name: the least time for one attempt, not for the pause between two.
            ("grpc.min_reconnect_backoff_ms", limits.CONNECT_TIMEOUT_MS),
            ("grpc.max_reconnect_backoff_ms", limits.RECONNECT_BACKOFF_MS_MAX),
            # A machine's proxy is for what lies outside; its refusals would be taken for the peer's.
            ("grpc.enable_http_proxy", 0),
            # One connection per channel: a stream must not wait behind another channel's flow control.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )
