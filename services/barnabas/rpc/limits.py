"""Named limits of the gRPC links between services."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 192 * 1024 * 1024
"""The largest gRPC message: a produce request at socket.request.max.bytes (100 MiB) and room for others with it."""

HTTP2_FRAME_BYTES_MAX: Final = 1024 * 1024
"""The largest frame of HTTP/2 that a peer may send: in frames of 16 KiB, the default, large ones cost a tenth more.
A probe waits behind one frame at most."""

FRAME_BYTES_TARGET: Final = 1024 * 1024
"""A coalesced frame is closed once it holds this many bytes of record batches, or of calls."""

FRAME_ITEMS_MAX: Final = 512
"""A coalesced frame is closed once it holds this many requests or results."""

STREAM_IN_FLIGHT_BYTES_MAX: Final = 32 * 1024 * 1024
"""What may be written to one stream and not be answered; the rest waits in the queue. It bounds what lies in the
buffers of gRPC and the kernel for a peer that does not answer. One request may be larger, and travels alone."""

APPEND_ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Results of one Append stream that may wait to be written before its next frame is taken."""

APPEND_ANSWER_BYTES: Final = 64
"""What one partition's append result counts against that limit."""

RECORD_ERROR_BYTES: Final = 128
"""What a record that is to blame for a refusal counts against it."""

FETCH_ANSWERS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of results of one Fetch stream that may wait to be written before further fetches of it are read."""

STALLED_WRITE_SECONDS_MAX: Final = 8.0
"""A stream whose peer takes no byte of a frame for this long is given up."""

KEEPALIVE_MS: Final = 1_000
"""A connection on which nothing came for this long is probed."""

KEEPALIVE_TIMEOUT_MS: Final = 2_000
"""A connection whose probe is not answered within this is given up: a peer that is frozen or cut off is known within
KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS. Probes are answered by gRPC's own threads, not by the event loop."""

RECONNECT_BACKOFF_MS_MIN: Final = 50
RECONNECT_BACKOFF_MS_MAX: Final = 500
CONNECT_TIMEOUT_MS: Final = 2_000
"""How long one attempt to connect may take: a machine out of breath gets there, a frozen peer is given up."""

LAST_ANSWERS_SECONDS: Final = 0.1
"""How long a stream that has written its last answers stays open, so that the peer reads them."""

LAST_RESULTS_SECONDS_MAX: Final = 1.0
"""How long results are still read from a peer that takes no more requests, because it has ended the stream."""

CALL_BYTES: Final = 64
"""What a coalesced call or its result counts besides its message."""

CALL_BYTES_MAX: Final = 256 * 1024
"""A larger request travels alone, and nothing waits behind it."""

CALL_ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Results of one stream of calls that may wait to be written before its next frame is taken."""

EARLIER_PEER_SECONDS: Final = 60.0
"""How long calls travel alone to a peer that knows no stream for them: it may be of a later version then."""
