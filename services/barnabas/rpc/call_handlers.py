"""The server's end of a service's calls that travel together: each is a task of its own, as with gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import start_span
from barnabas.links.errors import LinkError, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.messages.calls_pb2 import Call, CallFrame, CallResult, CallResultFrame
from barnabas.rpc import limits
from barnabas.rpc.answers import AnswerQueue
from barnabas.rpc.calls import method_path
from barnabas.rpc.serving import AT_ONCE, ServiceEnding, until_done, until_gone
from barnabas.rpc.status_codes import failure_of
from barnabas.rpc.traced_calls import span_name

log = get_logger("rpc.calls")

Method = Callable[[Call], Awaitable[bytes]]
"""From a call to its encoded response."""


def calls_handler(
    contract: ServiceDescriptor, service: object, ending: ServiceEnding
) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of the stream. With `ending` it begins no more calls, and ends when those under way are answered."""
    methods = {
        each.name: _method(each, getattr(service, each.name))
        for each in contract.methods
        if not each.client_streaming and hasattr(service, each.name)
    }

    async def serve(frames: AsyncIterator[CallFrame], context: Any) -> None:
        with ending.under_way:
            await context.send_initial_metadata(AT_ONCE)
            await until_gone(_Serving(methods, ending).run(frames, context.write))

    return grpc.stream_stream_rpc_method_handler(
        serve, CallFrame.FromString, CallResultFrame.SerializeToString
    )


def _method(method: Any, serve: Callable[[Any], Awaitable[Any]]) -> Method:
    decode = GetMessageClass(method.input_type).FromString
    name = span_name(method_path(method))

    async def answer(call: Call) -> bytes:
        request = decode(call.request)
        if not call.traceparent:
            return bytes((await serve(request)).SerializeToString())
        with start_span(name, traceparent=call.traceparent):
            return bytes((await serve(request)).SerializeToString())

    return answer


class _Serving:
    """Owner of the calls of one stream that are under way."""

    def __init__(self, methods: Mapping[str, Method], ending: asyncio.Event) -> None:
        self._methods = methods
        self._ending = ending
        self._running: dict[int, asyncio.Task[None]] = {}
        self._none_runs = asyncio.Event()
        self._none_runs.set()
        self._answers: AnswerQueue[CallResult] = AnswerQueue(
            lambda results: CallResultFrame(results=results), bytes_max=limits.CALL_ANSWERS_BYTES_MAX
        )

    async def run(
        self, frames: AsyncIterator[CallFrame], write: Callable[[CallResultFrame], Awaitable[None]]
    ) -> None:
        try:
            await until_done(self._take_until_the_end(frames), self._answers.write_forever(write))
        finally:
            for task in self._running.values():
                task.cancel()

    async def _take_until_the_end(self, frames: AsyncIterator[CallFrame]) -> None:
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(self._take(frames))
            ending = tasks.create_task(self._ending.wait())
            await asyncio.wait((taking, ending), return_when=asyncio.FIRST_COMPLETED)
            if self._ending.is_set():
                await self._none_runs.wait()
                await self._answers.wait_until_written()
                # gRPC resets a stream that ends while its peer writes, and the peer drops what it has not read yet.
                await asyncio.sleep(limits.LAST_ANSWERS_SECONDS)
            taking.cancel()
            ending.cancel()

    async def _take(self, frames: AsyncIterator[CallFrame]) -> None:
        async for frame in frames:
            await self._answers.wait_for_room()
            for call in frame.calls:
                self._begin(call)
            for correlation_id in frame.withdraw:
                task = self._running.get(correlation_id)
                if task is not None:
                    task.cancel()

    def _begin(self, call: Call) -> None:
        method = self._methods.get(call.method)
        if self._ending.is_set():
            self._fail(call, Unreachable("the service is being stopped"))
        elif method is None:
            self._fail(call, Refused(Refusal.UNKNOWN_CALL, f"there is no call {call.method}"))
        else:
            key = call.correlation_id
            task = asyncio.create_task(self._serve(call, method), name=call.method)
            self._running[key] = task
            self._none_runs.clear()
            task.add_done_callback(lambda _: self._on_done(key))

    async def _serve(self, call: Call, method: Method) -> None:
        try:
            response = await method(call)
        except Refused as refused:
            self._fail(call, refused)
        except LinkError as error:
            # Of a link of the service's own: what the service did before it failed is not known here.
            self._fail(call, OutcomeUnknown(str(error)))
        except Exception as error:
            log.exception("a call failed", method=call.method)
            self._fail(call, OutcomeUnknown(f"unexpected {type(error).__name__}"))
        else:
            self._answer(call, response)

    def _answer(self, call: Call, response: bytes) -> None:
        size_bytes = len(response) + limits.CALL_BYTES
        if size_bytes > limits.MESSAGE_BYTES_MAX:
            # gRPC would end the stream for it, and all other calls with that.
            log.warning("an answer is too large", method=call.method, bytes=len(response))
            self._fail(call, OutcomeUnknown(f"the answer has {len(response)} bytes, too many for a message"))
            return
        self._answers.put(CallResult(correlation_id=call.correlation_id, response=response), size_bytes)

    def _fail(self, call: Call, error: LinkError) -> None:
        result = CallResult(correlation_id=call.correlation_id, failure=failure_of(error))
        self._answers.put(result, limits.CALL_BYTES)

    def _on_done(self, key: int) -> None:
        del self._running[key]
        if not self._running:
            self._none_runs.set()
