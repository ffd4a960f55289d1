"""What happens around every call: bounding, letting in, reading the request, refusing, logging.

Servicers know nothing of it.
"""

from __future__ import annotations  # grpc's handler type is generic only in its stubs

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from interlock.reasons import Reason
from interlock.serving.access import Access
from interlock.serving.access import Context as Context
from interlock.serving.metrics import Metrics
from interlock.serving.refusals import Refusal

_LOGGER = logging.getLogger(__name__)

_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_OVERLOAD_RETRY_SECONDS = 1.0

_LEVELS = {Reason.INTERNAL: logging.ERROR, Reason.OVERLOADED: logging.WARNING, Reason.DRAINING: logging.DEBUG}
"""How loud a refusal is in the log; the others are for the caller to mend: info."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Turns what a servicer raises into the status of the call, bounds the calls that run, and logs how each ended.

    - `Refusal` becomes its own status, also alone in an `ExceptionGroup` (raised inside a task group).
    - Whoever may not call the method is refused (see `interlock.serving.access`).
    - A request that is no message of its type is refused (MALFORMED_MESSAGE).
    - `NotImplementedError` (a method of the generated base class) becomes UNIMPLEMENTED.
    - Any other exception becomes INTERNAL: the traceback goes to the log, nothing of it to the caller.
    - What gRPC itself raises (`context.abort`, a caller that went away) and cancellation pass untouched.
    - A generator of responses is closed before its call ends, also when the caller goes away in the middle.
    - A response may be the bytes of its message, serialised once for many callers.

    Calls over the bound are refused (OVERLOADED) before their request is read. Only health checks are not bounded: a
    busy server is not a dead one. (gRPC's own `maximum_concurrent_rpcs` knows neither reasons nor that exception.)
    """

    def __init__(self, max_concurrent_rpcs: int, access: Access, metrics: Metrics) -> None:
        self._max_concurrent_rpcs = max_concurrent_rpcs
        self._access = access
        self._metrics = metrics
        self._guarded: dict[str, tuple[grpc.RpcMethodHandler[Any, Any], grpc.RpcMethodHandler[Any, Any]]] = {}
        """By method: the handler of a servicer, and what we made of it."""
        self.running = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        if method != _HEALTH_CHECK:
            if self.running >= self._max_concurrent_rpcs:
                return self._overloaded(method)
            # This runs in the call's own task, whose end is the end of the call, however it comes.
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(self._ended)
            self.running += 1
        known, guarded = self._guarded.get(method, (None, None))
        if guarded is None or known is not handler:
            guarded = _guarded(method, handler, self._access, self._metrics)
            self._guarded[method] = handler, guarded
        return guarded

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self.running -= 1

    def _overloaded(self, method: str) -> grpc.RpcMethodHandler[Any, Any]:
        refusal = Refusal(
            Reason.OVERLOADED,
            f"the server runs {self._max_concurrent_rpcs} calls, as many as it may; try again later",
            retry_delay=_OVERLOAD_RETRY_SECONDS,
        )

        async def refuse(_: object, context: Context) -> None:
            await _conclude(method, context, self._metrics, _raise(refusal))

        # Streaming whatever the method is: such a handler answers without reading the request.
        return grpc.stream_stream_rpc_method_handler(refuse)


async def _raise(refusal: Refusal) -> None:
    raise refusal


def _guarded(
    method: str, handler: grpc.RpcMethodHandler[Any, Any], access: Access, metrics: Metrics
) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler with everything of `CallInterceptor` around its method."""

    def parse(data: bytes) -> Any:
        if handler.request_deserializer is None:
            return data
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            raise Refusal(
                Reason.MALFORMED_MESSAGE,
                f"{len(data)} bytes are no request of {method}: they do not decode",
            ) from None

    def serialized(response: Any) -> Any:
        if isinstance(response, bytes) or handler.response_serializer is None:
            return response
        return handler.response_serializer(response)

    arity = "_".join("stream" if many else "unary" for many in (handler.request_streaming, handler.response_streaming))
    servicer_method: Any = getattr(handler, arity)

    async def serve(request: Any, context: Context) -> Any:
        answered = servicer_method(request, context)
        if inspect.isawaitable(answered):  # one response, or a servicer that writes to the context itself
            return await answered
        async with aclosing(answered):
            async for response in answered:
                await context.write(response)
        return None

    async def admit_and_serve(request: Any, context: Context) -> Any:
        admission = access.admit(method, context)
        if not handler.request_streaming:
            request = parse(request)
        if admission is None:
            return await serve(request, context)
        if handler.request_streaming:
            request = admission.checked(request)
        else:
            admission.check(request)
        try:
            return await serve(request, context)
        except asyncio.CancelledError:
            if admission.revoked is None:
                raise
            raise admission.revoked from None

    async def answer(request: Any, context: Context) -> Any:
        return await _conclude(method, context, metrics, admit_and_serve(request, context))

    # A streamed request is parsed inside the servicer's own read, and the refusal comes out of that. gRPC would parse
    # a single one before we are called; it hands on the bytes instead.
    parse_streamed = parse if handler.request_streaming else None
    wrapped: grpc.RpcMethodHandler[Any, Any] = getattr(grpc, f"{arity}_rpc_method_handler")(
        answer, parse_streamed, serialized
    )
    return wrapped


async def _conclude(method: str, context: Context, metrics: Metrics, work: Awaitable[Any]) -> Any:
    """Awaits the work of one call, answers what it raised, and logs and counts how it ended."""
    started = time.monotonic()
    metrics.call_started(method)

    def ended(
        code: grpc.StatusCode,
        level: int = logging.DEBUG,
        message: str = "",
        *,
        failure: Exception | None = None,
        reason: Reason | None = None,
    ) -> None:
        seconds = time.monotonic() - started
        metrics.call_ended(method, code, seconds, reason)
        if _LOGGER.isEnabledFor(level):
            call = {"method": method, "code": code.name, "peer": context.peer(), "duration_seconds": round(seconds, 6)}
            call |= {"reason": reason.value} if reason is not None else {}
            _LOGGER.log(level, "%s %s%s", method, code.name, message and f": {message}", extra=call, exc_info=failure)

    try:
        result = await work
    except asyncio.CancelledError:
        ended(grpc.StatusCode.CANCELLED)
        raise
    except grpc.aio.InternalError:  # it was being written to when it went away; gRPC would report a fault of ours
        ended(grpc.StatusCode.CANCELLED)
        raise asyncio.CancelledError from None
    except grpc.aio.BaseError:
        ended(context.code() or grpc.StatusCode.UNKNOWN)
        raise
    except Exception as error:
        refusal, failure = _refusal_of(error), None
        if refusal is None:
            refusal, failure = Refusal(Reason.INTERNAL, "the server failed; its log has the cause"), error
        status = rpc_status.to_status(refusal.status())
        level = _LEVELS.get(refusal.reason, logging.INFO)
        ended(status.code, level, refusal.message, failure=failure, reason=refusal.reason)
        await context.abort_with_status(status)
    else:
        ended(grpc.StatusCode.OK)
        return result


def _refusal_of(error: Exception) -> Refusal | None:
    """The refusal that an exception means. None: it is a failure of the server."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Refusal):
        return error
    if isinstance(error, NotImplementedError):
        return Refusal(Reason.UNIMPLEMENTED, "this server does not implement the method")
    return None
