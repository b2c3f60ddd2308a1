"""From a frame to its answer: header, handler table, handler, encoding. The one border where errors are translated."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.answers.with_error import error_answer, top_error_answer
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.decoded_requests import DecodedRequests, TooLong, decoded_size, is_small
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.clients.turns import ALONE, Turn
from barnabas.gateway.clients.waits import Wait
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.handlers.api_versions import supported_versions
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request import Client, Handler, Request
from barnabas.gateway.request_times import RequestTimes, run_measured
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import StructuredLogger, get_logger
from barnabas.kernel.tracing import is_tracing, start_span
from barnabas.links.errors import LinkError
from barnabas.wire.requests import MalformedRequest, RequestHeader, check_body, decode_body, read_header
from barnabas.wire.responses import encode_response
from barnabas.wire.schema import API_VERSIONS_KEY, api_identifier, api_name, is_known_api

log = get_logger("gateway.request")


class Dispatcher:
    """Owns nothing but the way through: looks up the handler of each frame and encodes its answer."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        parts: GatewayParts,
        metrics: RequestMetrics,
        faults: Faults | None = None,
    ) -> None:
        self._handlers = handlers
        self._parts = parts
        self._metrics = metrics
        self._decoded = DecodedRequests(parts.budget)
        self._faults = Faults() if faults is None else faults

    async def serve(
        self, frame: bytes, client: Client, times: RequestTimes | None = None, turn: Turn = ALONE
    ) -> Pieces:
        """The encoded answer to one frame; None when none is to be sent. `times` are filled in.

        Raises MalformedRequest or CloseConnection when nothing can be answered.
        """
        header = read_header(frame)
        times = RequestTimes() if times is None else times
        times.api_key = header.api_key
        serving = self._serve(frame, header, client, times, turn)
        del frame  # a request that waits for long is to hold its records once, in the body
        try:
            return await serving
        except CloseConnection as error:
            self._metrics.observe_refused(times)
            error.identity = _identity(header)
            raise
        except MalformedRequest as error:
            raise CloseConnection(str(error), _identity(header)) from error

    async def _serve(
        self, frame: bytes, header: RequestHeader, client: Client, times: RequestTimes, turn: Turn
    ) -> Pieces:
        handler = self._handlers.get(header.api_key)
        if handler is None:
            known = api_name(header.api_key) if is_known_api(header.api_key) else "unknown"
            raise CloseConnection(f"api key {header.api_key} ({known}) is not served")
        if not handler.versions[0] <= header.api_version <= handler.versions[1]:
            return self._refuse_version(handler, header, times)
        times.api_version = header.api_version
        serving = self._serve_version(frame, header, client, times, turn, handler)
        del frame
        return await run_measured(serving, times)

    async def _serve_version(
        self,
        frame: bytes,
        header: RequestHeader,
        client: Client,
        times: RequestTimes,
        turn: Turn,
        handler: Handler,
    ) -> Pieces:
        try:
            checked = check_body(frame, header)
            size = decoded_size(header.api_key, len(frame), checked.items)
            del frame
            if is_small(header.api_key, size.bytes):
                request = Request(header, decode_body(checked, header), client, self._parts, times, turn)
                del checked
                return await self._serve_request(handler, request)
            waiting = [checked]  # of which one part is kept until its turn, and not for longer
            del checked

            async def serve(wait: Wait) -> Pieces:
                body = decode_body(waiting.pop(), header)
                return await self._serve_request(
                    handler, Request(header, body, client, self._parts, times, turn, wait)
                )

            return await self._decoded.serve(size, serve)
        except MalformedRequest as error:
            name = api_name(header.api_key)
            raise MalformedRequest(f"malformed {name} v{header.api_version}: {error}") from error
        except TooLong as error:
            raise CloseConnection(str(error)) from error

    async def _serve_request(self, handler: Handler, request: Request) -> Pieces:
        answer = self._answer_traced if is_tracing() else self._answer
        if self._faults.is_active:
            return await self._faults.serve(request, lambda: answer(handler, request))
        return await answer(handler, request)

    async def _answer_traced(self, handler: Handler, request: Request) -> Pieces:
        attributes: dict[str, str | int] = {
            "client_id": request.header.client_id or "",
            "version": request.version,
            "connection": request.client.connection_id,
        }
        with start_span(f"gateway.{api_identifier(handler.api_key)}", attributes=attributes):
            return await self._answer(handler, request)

    async def _answer(self, handler: Handler, request: Request) -> Pieces:
        try:
            answer = await handler.handle(request)
            if answer is None or isinstance(answer, bytes | list):
                return answer
            return await encode_answer(request, answer)
        except KafkaError as error:
            return await self._error(request, error.code, error.message)
        except LinkError as error:
            _logger(request).warning("no answer from inside", reason=str(error))
            return await self._error(request, handler.unanswered, "")
        except CloseConnection:
            raise
        except Exception as error:
            _logger(request).exception("request failed")
            return await self._error(
                request, ErrorCode.unknown_server_error, f"{type(error).__name__}: {error}"
            )

    async def _error(self, request: Request, code: ErrorCode, message: str) -> Pieces:
        header = request.header
        body = error_answer(header.api_key, header.api_version, request.body, code, message)
        if body is None:
            request.times.count_error(code)
            raise CloseConnection(f"{api_name(header.api_key)} failed: {code.name.upper()} {message}")
        return await encode_answer(request, body, error=code)

    def _refuse_version(self, handler: Handler, header: RequestHeader, times: RequestTimes) -> Pieces:
        """Answer UNSUPPORTED_VERSION in the nearest version that exists.

        ApiVersions is answered in version 0 with the table, so that the client can choose again (KIP-511).
        """
        code = ErrorCode.unsupported_version
        times.count_error(code)
        low, high = handler.versions
        if header.api_key == API_VERSIONS_KEY:
            body = {"error_code": code, "api_keys": supported_versions(self._handlers, self._parts)}
            return encode_response(header.api_key, 0, header.correlation_id, body)
        nearest = low if header.api_version < low else high
        message = f"{api_name(header.api_key)} v{header.api_version} is not served, only {low} to {high}"
        answer = top_error_answer(header.api_key, nearest, code, message)
        if answer is None:
            raise CloseConnection(message)
        return encode_response(header.api_key, nearest, header.correlation_id, answer)


def _logger(request: Request) -> StructuredLogger:
    return log.bind(
        connection=request.client.connection_id, client=request.client.host, **_identity(request.header)
    )


def _identity(header: RequestHeader) -> dict[str, object]:
    """What tells one request from all others in the log, beside its connection."""
    known = is_known_api(header.api_key)
    return {
        "api": api_name(header.api_key) if known else header.api_key,
        "version": header.api_version,
        "client_id": header.client_id,
        "correlation_id": header.correlation_id,
    }
