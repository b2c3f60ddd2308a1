"""One decision of a state machine: what it is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NewType, TypeVar

from google.protobuf.message import Message

from barnabas.kernel.errors import ErrorCode

RecordT = TypeVar("RecordT")
"""A record as the state machine knows it."""

Waiter = NewType("Waiter", int)
"""Names a call that waits for its answer; chosen by the shell, opaque to the state machine."""

_ASKED_AGAIN: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.member_id_required,
        ErrorCode.rebalance_in_progress,
    }
)
"""Codes that cost a client no more than another try."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line in the log: an event in words and its fields."""

    event: str
    fields: dict[str, object]


@dataclass(slots=True)
class Decision(Generic[RecordT]):
    """Collects what one request, or the deadlines due at one time, lead to.

    Handlers read the clock and unique ids from here and add records, replies and notes. Replies, to this caller
    and to others whose wait ends, may leave only when `records` and every record decided before are in the log; but
    for those that do not rest on it.

    A coordinator that was frozen, or cut off, while another one took over knows less than that one: it would tell
    offsets from before, refuse what is right, or find nothing to end or to delete. It cannot write. So an answer is
    the owner's, shown by a write, unless a handler says that it needs no such proof.
    """

    now_ms: int
    """Milliseconds since the epoch, for timestamps in records."""
    monotonic_ms: int
    """Milliseconds of a clock that never goes back, for deadlines."""
    draw_id: Callable[[], object] = str
    """Draws what is never drawn twice in the cluster, as text; new member ids end with it."""
    is_read_only: bool = False
    """The log takes no writes: the replies leave at once, so they may say only what is committed."""
    is_owner_by_refusal: bool = False
    """While the log takes no writes: its leader refused one of this coordinator within OWNER_KNOWN_SECONDS for want of
    room or replicas, which it says to the owner alone."""
    must_be_owner: bool = False
    """Something that is sent from now on is written before the replies leave, if only the kind's barrier."""
    records: list[RecordT] = field(default_factory=list)
    replies: list[tuple[Waiter, Message]] = field(default_factory=list)
    replies_at_once: list[tuple[Waiter, Message]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def reply(self, waiter: Waiter, message: Message) -> None:
        """Answer `waiter` once the records, or else something sent from now on, are in the log: it is the owner's
        word. Not where `is_read_only`."""
        self.must_be_owner = True
        self.replies.append((waiter, message))

    def reply_unproven(self, waiter: Waiter, message: Message) -> None:
        """Answer `waiter` once the records, if any, are in the log; without them, though another one may own it by
        now: with what costs nobody anything when it is out of date."""
        self.replies.append((waiter, message))

    def refuse(self, waiter: Waiter, code: ErrorCode, message: Message) -> None:
        """Answer `waiter` with `message`, which says `code`: as `reply`, for most end something, a transaction, a
        membership, some the process that asks. One after which the client only asks again needs no proof; where
        `is_read_only` there are no others.
        """
        if code in _ASKED_AGAIN:
            self.reply_unproven(waiter, message)
        else:
            self.reply(waiter, message)

    def reply_at_once(self, waiter: Waiter, message: Message) -> None:
        """Answer `waiter` now: what it is told does not rest on the log."""
        self.replies_at_once.append((waiter, message))

    def note(self, event: str, **fields: object) -> None:
        """Have the shell log `event`."""
        self.notes.append(Note(event, fields))
