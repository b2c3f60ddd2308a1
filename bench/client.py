"""One client of a benchmark, as a process of its own: `python bench/client.py WHAT JSON` prints a line of JSON.

A process apart, so that its processor time can be told from the server's and from that of the other clients.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(_run(what, arguments)), flush=True)


def _run(what: str, arguments: dict[str, Any]) -> dict[str, float]:
    if what == "requests":
        from clients.requests import request_rate

        return request_rate(**arguments)
    if what == "produce_at_rate":
        from clients.latency import produce_at_rate

        return produce_at_rate(**arguments)
    if what == "consume_latencies":
        from clients.latency import consume_latencies

        return consume_latencies(**arguments, announce=_announce)
    if what == "long_polls":
        from clients.crowds import long_polls

        return long_polls(**arguments)
    if what in ("group_members", "consumer_group_members"):
        from clients import groups

        form: Callable[..., dict[str, float]] = getattr(groups, what)
        return form(**arguments)
    if what in ("transactions", "copy_in_transactions"):
        from clients import transactions

        if what == "copy_in_transactions":
            return transactions.copy_in_transactions(**arguments, announce=_announce)
        return transactions.transactions(**arguments)
    from clients import librdkafka

    return {"seconds": getattr(librdkafka, what)(**arguments)}


def _announce() -> None:
    print("reading", flush=True)


if __name__ == "__main__":
    main()
