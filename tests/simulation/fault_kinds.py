"""The faults there are, each with its time and whom it befalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NODE_FAULTS: Final = (
    "kill",
    "kill",
    "stop",
    "pause",
    "cut",
    "cut",
    "break",
    "break",
    "slow disk",
    "slow link",
    "full disk",
)
ZOMBIE: Final = "zombie"
AMONG_NODES: Final = ("isolate", "isolate", ZOMBIE)
"""A node does not hear the others and is not heard by them; a zombie neither by the controllers. Clients reach it."""

TOGETHER_AMONG_NODES: Final = (
    ("isolate", "kill"),
    ("isolate", "kill"),
    ("isolate", "stop"),
    ("isolate", "pause"),
    ("isolate", "power"),
    ("isolate", "break"),
    ("zombie", "kill"),
    ("zombie", "pause"),
)

TOGETHER: Final = (
    ("slow disk", "kill"),
    ("slow disk", "power"),
    ("slow disk", "power"),
    ("slow disk", "stop"),
    ("cut", "kill"),
    ("cut", "stop"),
    ("cut", "power"),
    ("cut", "pause"),
    ("slow link", "kill"),
    ("slow link", "stop"),
    ("break", "kill"),
    ("break", "stop"),
    ("full disk", "kill"),
)
"""What comes together more often than chance would have it: the first begins a moment before the second."""

UNHEARD: Final = "unheard"
"""A node does not hear the controllers and one other node, nor they it, for so long that it takes the other one to lag;
clients and the third node reach it."""

FROZEN_WRITE: Final = "frozen write"
"""The active controller is frozen with a decision on its way to the store, until another one has taken over."""

BLACKOUT: Final = "blackout"
"""Power is lost with whatever was not synced, where others have all that is promised (`copies`)."""

WIPE: Final = "wipe"
"""The node's disk is replaced by an empty one, under the same condition."""

WIPE_LAST: Final = "wipe last"
"""All nodes stop in order, and the last one's disk is replaced; then all are started."""

REFUSING_DISK: Final = "refusing disk"
"""A node's disk takes no more records, for so long that others are to lead what is on it (`refusing_disk`)."""

ROT: Final = "rot"
"""A bit of a finished segment flips on a node's disk, under the same condition; later the disk is replaced."""

POWER_CUT: Final = "power cut"
"""All machines but the clients' lose power at once, and come back one after the other."""

GATEWAY_LINK_FAULTS: Final = ("cut", "break", "slow link")
GATEWAY_FAULTS: Final = ("kill", "stop", "pause", "pause", "cut", "cut", "break", "slow link")

DEPOSED: Final = "deposed"
"""A coordinator does not hear the controllers, nor they it; nodes and gateways do."""
COORDINATOR_FAULTS: Final = ("kill", "stop", "pause", "pause", "cut", "break", "slow link", DEPOSED, DEPOSED)

LATE_WRITE: Final = "late write"
"""What the coordinator that owns the group's partition writes comes late. Meanwhile nobody hears it, nor it them, so
that another one has taken the partition over and written."""

REPEATED_WRITE: Final = "repeated write"
"""What it writes comes late, behind the same, which it has sent again, and what it has written since."""

ISLAND: Final = "island"
"""It does not hear the controllers, nor do they hear it; nor does one gateway, whose clients go on with it."""

CLIENTS: Final = "clients"
"""The machine that they are at. Nodes do not meet them where gateways are machines of their own, but these."""

CONTROLLER_FAULTS: Final = ("kill", "pause", "cut", "store")

HAVE_A_PEER: Final = frozenset({"cut", "break", "slow link"})

FAULTS_SECONDS: Final = 8.0
"""How long things go wrong."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them; `peer` is the other machine where there is one."""

    at: float
    kind: str
    target: str
    seconds: float
    peer: str = ""
    is_both_ways: bool = False

    def __str__(self) -> str:
        ways = ("" if self.is_both_ways else " (one way)") if self.kind == "cut" else ""
        peer = f" and {self.peer}" if self.peer else ""
        return f"at {self.at:.2f} s, {self.seconds:.2f} s: {self.kind} {self.target}{peer}{ways}"
