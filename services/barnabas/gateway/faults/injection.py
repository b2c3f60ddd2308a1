"""Faults that a test injects: delays, lost answers and error codes for the requests that a rule fits.

The supervisor sends all rules anew whenever one is added or taken away, and keeps them in a file from which a gateway
that starts reads them before its first request. Without rules, dispatch asks one attribute (`is_active`) and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.faults.injected_answers import fault_answer, subject_of
from barnabas.gateway.faults.rule import FaultRefused, FaultRule, parse_rule
from barnabas.gateway.request import Request
from barnabas.kernel.logs import get_logger
from barnabas.wire.produce import API_KEY as PRODUCE

log = get_logger("gateway.faults")

Work = Callable[[], Awaitable[Pieces]]

_TALLY_MODE: Final = 0o600


class ActiveRule:
    """Owns what changes about a rule: its count of hits, its chance, and those who wait for its end."""

    def __init__(self, rule: FaultRule) -> None:
        self.rule = rule
        self.removed = asyncio.Event()
        self._random = random.Random(rule.seed)
        self._tally = _open_tally(rule.tally)

    def take(self) -> bool:
        """Whether the rule happens to a request that fits; counts it if so."""
        if self.rule.probability < 1 and self._random.random() >= self.rule.probability:
            return False
        # The place of our byte in the file is our number, whichever gateway wrote the bytes before it.
        os.write(self._tally, b".")
        number = os.lseek(self._tally, 0, os.SEEK_CUR)
        return not self.rule.times or number <= self.rule.times

    def remove(self) -> None:
        """End it: what was held or delayed goes on."""
        self.removed.set()
        os.close(self._tally)


class _Turns:
    """The order of one connection's requests: while faults are about, each waits for the one before it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.is_broken = False
        """Whether a request was dropped: those behind it on the connection are lost with it."""


class Faults:
    """Owns the rules of this gateway and the requests that are held under them."""

    def __init__(self) -> None:
        self._rules: list[ActiveRule] = []
        self._turns: defaultdict[int, _Turns] = defaultdict(_Turns)
        self.is_active = False
        """Whether requests have to come by here: there are rules, or requests held by earlier ones."""

    def load(self, path: str) -> None:
        """Take the rules from the supervisor's file; one that is not there has none.

        Raises FaultRefused.
        """
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            self.replace_text(file.read())

    def replace_text(self, text: bytes) -> None:
        """Take all rules from a JSON list of them; raises FaultRefused."""
        try:
            documents = json.loads(text)
        except ValueError as error:
            raise FaultRefused(f"not JSON: {error}") from error
        if not isinstance(documents, list) or not all(isinstance(document, dict) for document in documents):
            raise FaultRefused("expected a JSON list of faults")
        self.replace([parse_rule(document) for document in documents])

    def replace(self, rules: Iterable[FaultRule]) -> None:
        """Have exactly these rules; one that was there already keeps its count and its chance."""
        known = {active.rule: active for active in self._rules}
        self._rules = [known.pop(rule) if rule in known else ActiveRule(rule) for rule in rules]
        for gone in known.values():
            gone.remove()
        self._update()

    async def answer_http(self, method: str, body: bytes) -> tuple[int, bytes]:
        """`PUT` replaces the rules."""
        if method != "PUT":
            return 405, b"expected PUT\n"
        try:
            self.replace_text(body)
        except FaultRefused as error:
            return 400, f"{error}\n".encode()
        return 200, b"ok\n"

    async def serve(self, request: Request, work: Work) -> Pieces:
        """The answer to `request`, by `work` or by the first rule that fits. Raises CloseConnection."""
        async with self._turn(request.client.connection_id) as turns:
            is_produce = request.header.api_key == PRODUCE
            gaps = request.client.gaps
            if is_produce and gaps and gaps.is_behind(request.body):
                request.times.count_error(gaps.code)
                return fault_answer(request, gaps.code)
            active = self._find(request)
            if active is None:
                return await work()
            log.debug("fault", fault=active.rule.fault_id, client_id=request.header.client_id)
            if active.rule.after:
                pieces = await work()
                return await self._apply(active, request, turns, pieces)
            if is_produce and active.rule.error:
                gaps.open(request.body, active.rule.error_code)
            return await self._apply(active, request, turns, work)

    async def _apply(
        self, active: ActiveRule, request: Request, turns: _Turns, otherwise: Work | Pieces
    ) -> Pieces:
        rule = active.rule
        if rule.delay_seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rule.delay_seconds):
                    await active.removed.wait()
        if rule.hang:
            await active.removed.wait()
        if rule.hang or rule.drop:
            turns.is_broken = True
            raise CloseConnection(f"injected fault {rule.fault_id}")
        if rule.error:
            request.times.count_error(rule.error_code)
            return fault_answer(request, rule.error_code)
        return await otherwise() if callable(otherwise) else otherwise

    def _find(self, request: Request) -> ActiveRule | None:
        if not self._rules:
            return None
        subject = subject_of(request)
        return next((active for active in self._rules if active.rule.fits(subject) and active.take()), None)

    @contextlib.asynccontextmanager
    async def _turn(self, connection_id: int) -> AsyncIterator[_Turns]:
        turns = self._turns[connection_id]
        turns.users += 1
        try:
            async with turns.lock:
                if turns.is_broken:
                    raise CloseConnection("a request before it was dropped by an injected fault")
                yield turns
        finally:
            turns.users -= 1
            if not turns.users:
                self._turns.pop(connection_id, None)
                self._update()

    def _update(self) -> None:
        self.is_active = bool(self._rules or self._turns)


def _open_tally(path: str) -> int:
    if path:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _TALLY_MODE)
    with tempfile.TemporaryFile("ab", buffering=0) as file:
        return os.dup(file.fileno())
