"""The web application: FastAPI around :class:`fairdial.serve.service.Service`."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from fairdial._version import __version__
from fairdial.serve import openapi
from fairdial.serve.answers import (
    AuditAnswer,
    DialAnswer,
    Health,
    ObserveAnswer,
    PredictAnswer,
    Readiness,
)
from fairdial.serve.entries import AuditError, DialMovedError
from fairdial.serve.guard import INTERNAL_ERROR, Guard, error_body
from fairdial.serve.observations import ObservedError
from fairdial.serve.openapi import JSON, answers
from fairdial.serve.page import page_files, render_index
from fairdial.serve.records import BadRowError
from fairdial.serve.requests import PredictRequest, RefusedError, parse
from fairdial.serve.service import Service
from fairdial.serve.tokens import Tokens

MOST_BYTES = 2 << 20  # of a request's body
LARGE = 1 << 16  # bytes of a body that is parsed outside the event loop
BODY_TIMEOUT = 30.0  # seconds for a request's body
MOST_ENTRIES, USUAL_ENTRIES = 1_000, 100
QUERIES = {
    "limit": f"a whole number from 1 to {MOST_ENTRIES:,}",
    "before": "a version of the dial, 1 or more",
}
VARY = {"vary": "accept-encoding"}

log = logging.getLogger("fairdial.serve")


def create_app(
    service: Service,
    *,
    document: Callable[[], dict[str, object]],
    tokens: Tokens | None = None,
    open_observe: bool = False,
    hosts: tuple[str, ...] | None = None,
    root_path: str = "",
) -> Guard:
    """Return the application of a server.

    Parameters
    ----------
    service : Service
        What answers.
    document : callable
        Returns the page's document; called once, on the first request for it.
    tokens : Tokens, optional
        What allows changing the dial, sending observations and resetting them.
    open_observe : bool
        Whether anybody may send observations.
    hosts : tuple of str, optional
        Host names that requests may use; None allows any.
    root_path : str
        Prefix of all paths, which a proxy may keep or strip.
    """
    known = Tokens() if tokens is None else tokens
    app = FastAPI(
        title="fairdial",
        version=__version__,
        description="Decisions of a model with a fairness dial.",
        docs_url=None,  # these pages load scripts from other servers
        redoc_url=None,
        servers=[{"url": root_path}] if root_path else None,
    )
    decider, page = service.decider, _Page(document)
    waits, read_dial = service.waits, service.current_dial

    @app.get("/healthz", responses=answers(Health))
    async def health(_: Request) -> Response:
        """Report that the server is up."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    @app.get("/readyz", responses=answers(Readiness, 503))
    async def ready(_: Request) -> Response:
        """Report whether the server can decide: the model is loaded and the dial can be read."""
        return _json(await run_in_threadpool(service.ready))

    @app.post(
        "/v1/predict",
        responses=answers(PredictAnswer, 408, 413, 415, 422, 503),
        openapi_extra=openapi.predict_body(decider),
    )
    async def predict(request: Request) -> Response:
        """Decide on rows, at the dial's tolerance or at tolerances of the request."""
        asked = await _parse(request)
        dial = service.current_dial() if not waits else await run_in_threadpool(read_dial)
        if service.is_fast(asked, dial):
            answer = service.predict(asked, dial)
        else:
            answer = await run_in_threadpool(service.predict, asked, dial)
        return Response(answer, media_type=JSON)

    @app.get("/v1/frontier", responses={**answers(None), 200: openapi.DOCUMENT})
    async def frontier(request: Request) -> Response:
        """Return all operating points: the document of the page."""
        whole, packed = await page.read()
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = {"content-encoding": "gzip", **VARY}
            return Response(packed, media_type=JSON, headers=headers)
        return Response(whole, media_type=JSON, headers=VARY)

    @app.get("/v1/dial", responses=answers(DialAnswer, 503))
    async def dial(_: Request) -> Response:
        """Return the dial's tolerance and its figures."""
        return _dial(await run_in_threadpool(service.describe_dial))

    @app.put(
        "/v1/dial",
        responses=answers(DialAnswer, 401, 403, 408, 412, 413, 415, 422, 503),
        openapi_extra={
            **openapi.dial_body(),
            **openapi.TOKEN,
            "parameters": [openapi.IF_MATCH],
        },
    )
    async def move(request: Request) -> Response:
        """Change the dial; the change is recorded before it takes effect."""
        if service.log is None or not service.log.writable:
            raise RefusedError(403, "this server is read-only.")
        name = _allow(request, known)
        body = await _read(request)
        names = known.people.values()
        entry = await run_in_threadpool(service.move_dial, body, _seen(request), name, names)
        log.info(
            "dial version %d: tolerance %g, confidence %s",
            entry.version,
            entry.tolerance,
            entry.confidence,
        )
        return _dial(await run_in_threadpool(service.describe_dial, entry))

    @app.get("/v1/audit", responses=answers(AuditAnswer, 422, 503))
    async def audit(
        _: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = USUAL_ENTRIES,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    ) -> Response:
        """List the changes to the dial, newest first."""
        return _json(await run_in_threadpool(service.audit, limit, before))

    @app.post(
        "/v1/observe",
        responses=answers(ObserveAnswer, 401, 403, 408, 413, 415, 422, 503),
        openapi_extra={
            **openapi.observe_body(decider),
            **({} if open_observe else openapi.TOKEN),
        },
    )
    async def observe(request: Request) -> Response:
        """Count unlabeled rows, and return all observations."""
        if not open_observe:
            _allow(request, known, to_observe=True)
        body = await _read(request)
        return _json(await run_in_threadpool(service.observe, body))

    @app.get("/v1/observe", responses=answers(ObserveAnswer, 503))
    async def observed(_: Request) -> Response:
        """Return all observations."""
        return _json(await run_in_threadpool(service.observed))

    @app.delete(
        "/v1/observe",
        responses=answers(ObserveAnswer, 401, 403, 503),
        openapi_extra=openapi.TOKEN,
    )
    async def forget(request: Request) -> Response:
        """Reset the observations."""
        _allow(request, known)
        return _json(await run_in_threadpool(service.reset_observations))

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **answers(None, 503)})
    async def metrics(_: Request) -> Response:
        """Return metrics for Prometheus."""
        text = await run_in_threadpool(service.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def index(_: Request) -> Response:
        return Response(page.index, media_type="text/html; charset=utf-8")

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        file = page.files.get(name)
        if file is None:
            raise HTTPException(404)
        headers = {"cache-control": "no-cache"}
        return Response(file.content, media_type=file.media_type, headers=headers)

    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    openapi.add_token(app)
    # a plain route for the same function: FastAPI's own takes longer than deciding on one row
    app.router.routes.insert(0, Route("/v1/predict", predict, methods=["POST"]))
    paths = [route.path for route in app.routes if hasattr(route, "path")]
    return Guard(
        app,
        hosts=hosts,
        paths=paths,
        count=service.metrics.request,
        close=service.close,
        root_path=root_path,
    )


class _Page:
    """The page's files, and its document once somebody asked for it."""

    def __init__(self, document: Callable[[], dict[str, object]]) -> None:
        self.index, self.files = render_index().encode(), page_files()
        self._document = document
        self._task: asyncio.Future[tuple[bytes, bytes]] | None = None

    async def read(self) -> tuple[bytes, bytes]:
        """Return the document, plain and compressed; one thread makes it for everybody waiting."""
        if self._task is None or (self._task.done() and self._task.exception()):
            self._task = asyncio.ensure_future(run_in_threadpool(self._make))
        return await asyncio.shield(self._task)

    def _make(self) -> tuple[bytes, bytes]:
        whole = json.dumps(self._document(), allow_nan=False).encode()
        return whole, gzip.compress(whole, 6)


# ---- requests ----------------------------------------------------------------------------------


async def _read(request: Request) -> bytes:
    """Return the body of a request; raise RefusedError if it isn't JSON, is too large or late."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:  # a page of another origin can't send JSON without a preflight request
        raise RefusedError(415, f"the content type must be {JSON}.")
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size) > MOST_BYTES:
        raise _too_large()
    parts, length = [], 0
    more = True
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, more = message.get("body", b""), message.get("more_body", False)
                length += len(part)
                if length > MOST_BYTES:
                    raise _too_large()
                parts.append(part)
    except TimeoutError:
        raise RefusedError(
            408, f"the request must arrive within {BODY_TIMEOUT:g} seconds."
        ) from None
    return b"".join(parts)


async def _parse(request: Request) -> PredictRequest:
    body = await _read(request)
    if len(body) > LARGE:
        return await run_in_threadpool(parse, PredictRequest, body)
    return parse(PredictRequest, body)


def _too_large() -> RefusedError:
    return RefusedError(413, f"the request must have at most {MOST_BYTES:,} bytes.")


def _allow(request: Request, tokens: Tokens, *, to_observe: bool = False) -> str | None:
    """Return the name of the request's token, if it has one; raise RefusedError without a token."""
    if not tokens.allow(to_observe=to_observe):
        raise RefusedError(403, "this server was started without a token that allows this.")
    given = request.headers.get("authorization", "")
    allowed, name = tokens.find(given, to_observe=to_observe)
    if not allowed:
        raise RefusedError(401, "the token is missing or wrong.")
    return name


def _seen(request: Request) -> int | None:
    """Return the version that the caller saw, or -1, which matches none, if it isn't a number."""
    given = request.headers.get("if-match", "*").strip()
    if given == "*":
        return None
    number = given.strip('"')
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1


# ---- answers -----------------------------------------------------------------------------------


def _json(data: dict[str, object], **headers: str) -> Response:
    return Response(json.dumps(data, allow_nan=False), media_type=JSON, headers=headers)


def _dial(data: dict[str, object]) -> Response:
    return _json(data, etag=f'"{data["version"]}"')


def _problem(request: Request, status: int, detail: str, **headers: str) -> Response:
    body = error_body(detail, request.state.request)
    return Response(body, status, headers=headers, media_type=JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    if error.status >= 500:
        log.error("request %s: %s", request.state.request, error.__cause__)
    elif error.status == 401:
        sender = "-" if request.client is None else request.client.host
        log.warning("request %s: no valid token, from %s", request.state.request, sender)
    headers = {
        401: {"www-authenticate": 'Bearer realm="fairdial"'},
        408: {"connection": "close"},
    }.get(error.status, {})
    return _problem(request, error.status, error.detail, **headers)


async def _bad_row(request: Request, error: Exception) -> Response:
    return _problem(request, 422, str(error))


async def _moved(request: Request, error: Exception) -> Response:
    assert isinstance(error, DialMovedError)
    detail = f"the dial is at version {error.version}, not at the version in `If-Match`."
    return _problem(request, 412, detail, etag=f'"{error.version}"')


async def _unavailable(request: Request, error: Exception) -> Response:
    log.error("request %s: %s", request.state.request, error)
    done = "nothing was changed."
    if isinstance(error, AuditError) and error.doubtful:
        done = "the change may have been recorded; look at the dial before you try again."
    detail = f"the audit log or the observations can't be read or written at the moment; {done}"
    return _problem(request, 503, detail)


async def _invalid_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    names = [e["loc"][-1] for e in error.errors()]
    return _problem(request, 422, f"{'; '.join(f'`{n}` must be {QUERIES[n]}' for n in names)}.")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return _problem(request, error.status_code, str(error.detail), **headers)


async def _disconnected(request: Request, _: Exception) -> Response:
    return _problem(request, 400, "the connection was closed before the request was complete.")


async def _internal(request: Request, _: Exception) -> Response:  # the guard logs it
    return _problem(request, 500, INTERNAL_ERROR)


HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    RefusedError: _refused,
    BadRowError: _bad_row,
    DialMovedError: _moved,
    AuditError: _unavailable,
    ObservedError: _unavailable,
    RequestValidationError: _invalid_query,
    HTTPException: _http_error,
    ClientDisconnect: _disconnected,
    Exception: _internal,
}
"""Answers to exceptions; none repeats what the client sent."""
