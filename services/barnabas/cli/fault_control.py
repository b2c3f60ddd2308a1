"""The injected faults of a cluster: added and removed over HTTP, handed to every gateway.

SOCKETS/faults.json     all rules, from which a gateway that starts reads them
SOCKETS/fault-N.tally   a byte for each request that fault N happened to, written by all gateways

What knows of rules is imported with the first one: it is heavy, and every cluster of every test session starts here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.cli.plan import faults_file
from barnabas.cli.supervisor import SupervisedService
from barnabas.cli.telling import NotTold, tell
from barnabas.kernel.logs import get_logger

FAULTY: Final = ("gateway", "broker")
"""The kinds of process that serve clients."""

log = get_logger("faults")


class FaultControl:
    """Owns the rules. A change is complete when every gateway that runs has it."""

    def __init__(self, folder: Path, services: Sequence[SupervisedService]) -> None:
        self._folder = folder
        self._gateways = [service for service in services if service.spec.service in FAULTY]
        self._rules: dict[int, Mapping[str, Any]] = {}
        self._ids = itertools.count(1)
        self._changing = asyncio.Lock()

    def list_all(self) -> list[dict[str, Any]]:
        """Every rule with its `hits`."""
        return [{**rule, "hits": count_hits(rule)} for rule in self._rules.values()]

    async def add(self, body: bytes) -> int:
        """Add the rule in the JSON `body` and return its id; raises FaultRefused."""
        from barnabas.gateway.faults.rule import FaultRefused, parse_rule, to_document

        try:
            document = json.loads(body)
        except ValueError as error:
            raise FaultRefused(f"not JSON: {error}") from error
        if not isinstance(document, dict):
            raise FaultRefused("expected a JSON object")
        number = next(self._ids)
        rule = parse_rule({**document, "fault_id": number, "tally": str(self._tally(number))})
        async with self._changing:
            self._rules[number] = to_document(rule)
            try:
                await self._tell()
            except FaultRefused:
                del self._rules[number]
                self._write()
                raise
        return number

    async def remove(self, fault_id: int) -> int | None:
        """Remove a rule and return how often it happened; None where there is no such rule."""
        async with self._changing:
            rule = self._rules.pop(fault_id, None)
            if rule is None:
                return None
            await self._tell()
            hits = count_hits(rule)
            self._tally(fault_id).unlink(missing_ok=True)
            return hits

    def _tally(self, fault_id: int) -> Path:
        return self._folder / f"fault-{fault_id}.tally"

    async def _tell(self) -> None:
        text = self._write()
        await asyncio.gather(*(self._tell_gateway(gateway, text) for gateway in self._gateways))

    def _write(self) -> bytes:
        """The rules as the file now has them."""
        text = json.dumps(list(self._rules.values())).encode()
        path = faults_file(self._folder)
        draft = path.with_suffix(".new")
        draft.write_bytes(text)
        os.replace(draft, path)
        return text

    async def _tell_gateway(self, gateway: SupervisedService, text: bytes) -> None:
        """Hand over the rules; a gateway that is not running will find them in the file. Raises FaultRefused."""
        from barnabas.gateway.faults.rule import FaultRefused

        try:
            await tell(gateway, "/faults", text)
        except NotTold as error:
            raise FaultRefused(str(error)) from error


def count_hits(rule: Mapping[str, Any]) -> int:
    """How many requests the rule of this document has happened to, by its tally."""
    try:
        hits = os.stat(rule["tally"]).st_size
    except OSError:
        return 0
    return min(hits, rule["times"]) if rule["times"] else hits
