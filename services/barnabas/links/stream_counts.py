"""What coalesced streams count: messages, what is in them, and the waits. Plain numbers of one service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakSet

from barnabas.kernel.histograms import Histogram

if TYPE_CHECKING:
    from collections.abc import Sized

ITEMS_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Upper bounds for items in one message; the last is limits.FRAME_ITEMS_MAX."""

MessageT = TypeVar("MessageT")
ItemsT = TypeVar("ItemsT", bound="Sized")


class WaitingStream(Protocol):
    """What can be asked of a client's stream that is open."""

    @property
    def waiting_requests(self) -> int: ...
    @property
    def queued_bytes(self) -> int: ...


class MessageCounts:
    """Messages in one direction."""

    __slots__ = ("bytes", "items")

    def __init__(self) -> None:
        self.items = Histogram(ITEMS_BUCKETS)
        self.bytes = 0

    def count(self, items: Sized) -> None:
        """One message with these items."""
        self.items.observe(len(items))

    def counted(self, items: ItemsT) -> ItemsT:
        """`items` again, counted as those of one message."""
        self.items.observe(len(items))
        return items

    def counting(self, decode: Callable[[bytes], MessageT]) -> Callable[[bytes], MessageT]:
        """`decode`, which also counts the bytes that it is given."""

        def counted(data: bytes) -> MessageT:
            self.bytes += len(data)
            return decode(data)

        return counted

    def counting_encoder(self, encode: Callable[[MessageT], bytes]) -> Callable[[MessageT], bytes]:
        """`encode`, which also counts the bytes that it gives."""

        def counted(message: MessageT) -> bytes:
            data = encode(message)
            self.bytes += len(data)
            return data

        return counted


class StreamCounts:
    """All streams of one kind at one end, for as long as the service lives: streams come and go with connections."""

    __slots__ = ("breaks", "open", "received", "sent", "write_wait_seconds")

    def __init__(self) -> None:
        self.sent = MessageCounts()
        self.received = MessageCounts()
        self.write_wait_seconds = 0.0
        self.breaks = 0
        self.open: WeakSet[WaitingStream] = WeakSet()
        """Client ends that exist."""


class StorageStreamCounts:
    """The two kinds of streams between a service and storage nodes, at the service's end or at the node's."""

    __slots__ = ("appends", "fetches")

    def __init__(self) -> None:
        self.appends = StreamCounts()
        self.fetches = StreamCounts()
