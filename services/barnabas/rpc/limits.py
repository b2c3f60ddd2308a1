"""Named limits of the gRPC links between services."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 192 * 1024 * 1024
"""The largest gRPC message: a produce request at socket.request.max.bytes (100 MiB) and room for others with it."""

FRAME_BYTES_TARGET: Final = 1024 * 1024
"""A coalesced frame is closed once it holds this many bytes of record batches."""

FRAME_ITEMS_MAX: Final = 512
"""A coalesced frame is closed once it holds this many requests or results."""

STREAM_QUEUED_BYTES_MAX: Final = 256 * 1024 * 1024
"""What may wait for one stream before further requests are refused; gateways stop reading sockets long before."""

KEEPALIVE_MS: Final = 5_000
"""How often an idle connection is probed."""

KEEPALIVE_TIMEOUT_MS: Final = 3_000
"""A connection whose probe is not answered within this is given up."""

RECONNECT_BACKOFF_MS_MIN: Final = 50
RECONNECT_BACKOFF_MS_MAX: Final = 500
