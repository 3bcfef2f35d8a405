"""The web application: FastAPI around :class:`fairdial.serve.service.Service`."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from fairdial._version import __version__
from fairdial.serve import schema
from fairdial.serve.audit import AuditError, DialMovedError
from fairdial.serve.guard import BROKEN, App, Guard, error_body
from fairdial.serve.observed import ObservedError
from fairdial.serve.page import page_files, render_index
from fairdial.serve.records import BadRowError
from fairdial.serve.service import RefusedError, Service, parse

MOST_BYTES = 2 << 20  # of a request
LARGE = 1 << 16  # bytes of a request that is read beside the loop
BODY = 30.0  # seconds for a request's body
MOST_ENTRIES, USUAL_ENTRIES = 1_000, 100
QUERIES = {
    "limit": f"a whole number from 1 to {MOST_ENTRIES:,}",
    "before": "a version of the dial, 1 or more",
}
JSON = "application/json"
SCHEME = b"bearer "

log = logging.getLogger("fairdial.serve")

WORDS = {
    304: "Unchanged.",
    401: "The token is missing or wrong.",
    403: "This server is read-only, or takes no observations.",
    408: "The request didn't come in time.",
    412: "The dial isn't at the version of If-Match.",
    413: "The request is too large.",
    415: "The request is not JSON.",
    422: "The request can't be answered as it is.",
    503: "A file of the server can't be read or written.",
}


def create_app(
    service: Service,
    *,
    document: Callable[[], dict[str, Any]],
    token: str | None = None,
    observer: str | None = None,
    open_observe: bool = False,
    hosts: tuple[str, ...] | None = None,
) -> App:
    """The application of a server.

    Parameters
    ----------
    service : Service
        What answers.
    document : callable
        Gives the page's document; called once, when it is first asked for.
    token : str, optional
        Moves the dial, sends observations and starts them anew; without, nobody can.
    observer : str, optional
        Another token, which sends observations and does nothing else.
    open_observe : bool
        Anybody may send observations.
    hosts : tuple of str, optional
        Names under which the server may be asked; None: any.
    """

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="fairdial",
        version=__version__,
        description="Decisions of a model with a fairness dial.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
    )
    page = _Page(document)

    @app.get("/healthz", responses=_told(schema.Health))
    async def health(_: Request) -> Response:
        """Whether the server answers."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    @app.post(
        "/v1/predict",
        responses=_told(schema.PredictAnswer, 408, 413, 415, 422, 503),
        openapi_extra=_body(_predict_schema(service)),
    )
    async def predict(request: Request) -> Response:
        """Decisions for rows, at where the dial stands or at tolerances of one's own."""
        asked = await _parse(request)
        standing = service.standing()
        if service.takes_a_moment(asked, standing):
            answer = service.predict(asked, standing)
        else:
            answer = await run_in_threadpool(service.predict, asked, standing)
        return Response(answer, media_type=JSON)

    @app.get("/v1/frontier", responses={**_told(None), 200: _document()})
    async def frontier(request: Request) -> Response:
        """What every position of the dial does: the page's document."""
        whole, packed = await page.read()
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                packed, media_type=JSON, headers={"content-encoding": "gzip", "vary": WHICH}
            )
        return Response(whole, media_type=JSON, headers={"vary": WHICH})

    @app.get("/v1/dial", responses=_told(schema.DialAnswer, 503))
    async def dial(_: Request) -> Response:
        """Where the dial stands."""
        return _dial(await run_in_threadpool(service.dial))

    @app.put(
        "/v1/dial",
        responses=_told(schema.DialAnswer, 401, 403, 408, 412, 413, 415, 422, 503),
        openapi_extra={
            **_body(_dial_schema()),
            "security": [{"token": []}],
            "parameters": [
                {
                    "name": "If-Match",
                    "in": "header",
                    "description": "The version that was seen, in quotes.",
                    "schema": {"type": "string", "maxLength": 100},
                }
            ],
        },
    )
    async def move(request: Request) -> Response:
        """Move the dial; it is recorded before it takes effect."""
        if service.log is None or not service.log.writable:
            raise RefusedError(403, "this server is read-only.")
        _allow(request, token)
        body = await _read(request)
        entry = await run_in_threadpool(service.move, body, _seen(request))
        log.info(
            "dial version %d: tolerance %g, confidence %s",
            entry.version,
            entry.tolerance,
            entry.confidence,
        )
        return _dial(await run_in_threadpool(service.dial, entry))

    @app.get("/v1/audit", responses=_told(schema.AuditAnswer, 422, 503))
    async def audit(
        _: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = USUAL_ENTRIES,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    ) -> Response:
        """Moves of the dial, the last one first."""
        return _json(await run_in_threadpool(service.audit, limit, before))

    @app.post(
        "/v1/observe",
        responses=_told(schema.ObserveAnswer, 401, 403, 408, 413, 415, 422, 503),
        openapi_extra={
            **_body(_observe_schema(service)),
            **({} if open_observe else {"security": [{"token": []}]}),
        },
    )
    async def observe(request: Request) -> Response:
        """Count unlabelled rows, and tell what was observed so far."""
        if not open_observe:
            _allow(request, token, observer)
        body = await _read(request)
        return _json(await run_in_threadpool(service.observe, body))

    @app.get("/v1/observe", responses=_told(schema.ObserveAnswer, 503))
    async def observed(_: Request) -> Response:
        """What was observed so far."""
        return _json(await run_in_threadpool(service.observed))

    @app.delete(
        "/v1/observe",
        responses=_told(schema.ObserveAnswer, 401, 403, 503),
        openapi_extra={"security": [{"token": []}]},
    )
    async def forget(request: Request) -> Response:
        """Start counting anew."""
        _allow(request, token)
        return _json(await run_in_threadpool(service.forget))

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **_told(None, 503)})
    async def metrics(_: Request) -> Response:
        """Figures for Prometheus."""
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
        return Response(
            file.content, media_type=file.media_type, headers={"cache-control": "no-cache"}
        )

    _answer_errors(app)
    _describe(app)
    # The same function, asked first: FastAPI's own bookkeeping is much beside one row's decision
    app.router.routes.insert(0, Route("/v1/predict", predict, methods=["POST"]))
    paths = [route.path for route in app.routes if hasattr(route, "path")]
    return Guard(app, hosts=hosts, paths=paths, count=service.metrics.request)


WHICH = "accept-encoding"


class _Page:
    """The page's files, and its document once it was asked for."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self.index, self.files = render_index().encode(), page_files()
        self._document = document
        self._making: asyncio.Future[tuple[bytes, bytes]] | None = None

    async def read(self) -> tuple[bytes, bytes]:
        """The document, plain and compressed; made once, by one thread, whoever waits for it."""
        if self._making is None or (self._making.done() and self._making.exception()):
            self._making = asyncio.ensure_future(run_in_threadpool(self._make))
        return await asyncio.shield(self._making)

    def _make(self) -> tuple[bytes, bytes]:
        whole = json.dumps(self._document(), allow_nan=False).encode()
        return whole, gzip.compress(whole, 6)


# ---- requests ----------------------------------------------------------------------------------


async def _read(request: Request) -> bytes:
    """The body of a request, if it is JSON and not too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:  # nor can a page of somebody else's send it without being asked
        raise RefusedError(415, f"the content type must be {JSON}.")
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size) > MOST_BYTES:
        raise _too_large()
    parts, length = [], 0
    more = True
    try:
        async with asyncio.timeout(BODY):
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
        raise RefusedError(408, f"the request must come within {BODY:g} seconds.") from None
    return b"".join(parts)


async def _parse(request: Request) -> schema.PredictRequest:
    """What is asked; a large body is read beside the loop."""
    body = await _read(request)
    if len(body) > LARGE:
        return await run_in_threadpool(parse, schema.PredictRequest, body)
    return parse(schema.PredictRequest, body)


def _too_large() -> RefusedError:
    return RefusedError(413, f"the request must have at most {MOST_BYTES:,} bytes.")


def _allow(request: Request, *tokens: str | None) -> None:
    """Only who has one of the tokens may go on."""
    known = [token for token in tokens if token is not None]
    if not known:
        raise RefusedError(403, "this server was started without a token that allows it.")
    given = request.headers.get("authorization", "").encode("latin-1", "replace")
    secret = given[len(SCHEME) :].strip() if given[: len(SCHEME)].lower() == SCHEME else b""
    if not sum(hmac.compare_digest(secret, token.encode()) for token in known):
        raise RefusedError(401, "the token is missing or wrong.")


def _seen(request: Request) -> int | None:
    """The version that the caller has seen, if told; one that is none can't be the last."""
    given = request.headers.get("if-match", "*").strip()
    if given == "*":
        return None
    number = given.strip('"')
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 16 else -1


# ---- answers -----------------------------------------------------------------------------------


def _json(data: dict[str, Any], **headers: str) -> Response:
    return Response(json.dumps(data, allow_nan=False), media_type=JSON, headers=headers)


def _dial(data: dict[str, Any]) -> Response:
    return _json(data, etag=f'"{data["version"]}"')


def _answer_errors(app: FastAPI) -> None:
    """What was raised, as an answer that repeats nothing that was sent."""

    def problem(request: Request, status: int, detail: str, **headers: str) -> Response:
        body = error_body(detail, request.state.request)
        return Response(body, status, headers=headers, media_type=JSON)

    async def refused(request: Request, error: Any) -> Response:
        if error.status >= 500:
            log.error("request %s: %s", request.state.request, error.__cause__)
        more = {
            401: {"www-authenticate": 'Bearer realm="fairdial"'},
            408: {"connection": "close"},
        }.get(error.status, {})
        return problem(request, error.status, error.detail, **more)

    async def bad_row(request: Request, error: Any) -> Response:
        return problem(request, 422, str(error))

    async def moved(request: Request, error: Any) -> Response:
        return problem(
            request,
            412,
            f"the dial is at version {error.version}, not at that of `If-Match`. Look again, and "
            "then decide.",
            etag=f'"{error.version}"',
        )

    async def unavailable(request: Request, error: Any) -> Response:
        log.error("request %s: %s", request.state.request, error)
        return problem(
            request, 503, "a file of the server can't be read or written; nothing was changed."
        )

    async def invalid(request: Request, error: Any) -> Response:
        names = [e["loc"][-1] for e in error.errors()]
        told = "; ".join(f"`{name}` must be {QUERIES[name]}, got another value" for name in names)
        return problem(request, 422, f"{told}.")

    async def other(request: Request, error: Any) -> Response:
        return problem(request, error.status_code, str(error.detail), **(error.headers or {}))

    async def broken(request: Request, _: Any) -> Response:  # the guard logs it
        return problem(request, 500, BROKEN)

    async def gone(request: Request, _: Any) -> Response:
        return problem(request, 400, "the request ended early.")

    for kind, handler in (
        (RefusedError, refused),
        (BadRowError, bad_row),
        (DialMovedError, moved),
        (AuditError, unavailable),
        (ObservedError, unavailable),
        (RequestValidationError, invalid),
        (HTTPException, other),
        (ClientDisconnect, gone),
        (Exception, broken),
    ):
        app.add_exception_handler(kind, handler)


# ---- the description ---------------------------------------------------------------------------


def _told(answer: Any, *problems: int) -> dict[int | str, dict[str, Any]]:
    """What can be answered."""
    found: dict[int | str, dict[str, Any]] = {} if answer is None else {200: {"model": answer}}
    for status in (*problems, 500):
        words = WORDS.get(status, "Something went wrong on the server.")
        found[status] = {"model": schema.Problem, "description": words}
    return found


def _document() -> dict[str, Any]:
    return {"content": {JSON: {"schema": {"type": "object"}}}, "description": "The document."}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {JSON: {"schema": content}}}}


_TOLERANCE = {"type": "number", "minimum": 0, "maximum": 1}


def _group_schema(service: Service) -> dict[str, Any]:
    from fairdial.states_json import plain_name

    names = [plain_name(name) for name in service.decider.frontier.groups]
    return {"enum": names + ([] if service.decider.unnamed is None else [None])}


def _row_schema(service: Service, *, dialled: bool) -> dict[str, Any]:
    properties = {"features": service.decider.layout.schema(), "group": _group_schema(service)}
    if dialled:
        properties["tolerance"] = {"anyOf": [_TOLERANCE, {"type": "null"}]}
    needed = ["features"] + (["group"] if service.decider.unnamed is None else [])
    return _object(properties, needed)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _array(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def _predict_schema(service: Service) -> dict[str, Any]:
    rows = _array(_row_schema(service, dialled=True), schema.MOST_ROWS)
    tolerance = {"anyOf": [_TOLERANCE, {"type": "null"}]}
    return _object({"rows": rows, "tolerance": tolerance}, ["rows"])


def _observe_schema(service: Service) -> dict[str, Any]:
    rows = _object(
        {"rows": _array(_row_schema(service, dialled=False), schema.MOST_ROWS)}, ["rows"]
    )
    if not service.decider.swept:
        return rows
    limits = {"minimum": -1e308, "maximum": 1e308}
    scores = _array({"type": "number", **limits}, schema.MOST_SCORES)
    groups = _array(_group_schema(service), schema.MOST_SCORES)
    needed = ["scores"] + (["groups"] if len(service.decider.groups) > 1 else [])
    return {"oneOf": [_object({"scores": scores, "groups": groups}, needed), rows]}


def _dial_schema() -> dict[str, Any]:
    return schema.DialRequest.model_json_schema()


def _describe(app: FastAPI) -> None:
    """The OpenAPI document, with the token."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            schemes = {"token": {"type": "http", "scheme": "bearer"}}
            found.setdefault("components", {})["securitySchemes"] = schemes
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
