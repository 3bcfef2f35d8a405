"""The OpenAPI document: request bodies of the served model, answers, and the token."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from fairdial.core.serialization import json_name
from fairdial.serve.answers import Problem
from fairdial.serve.deciding import Decider
from fairdial.serve.requests import MOST_ROWS, MOST_SCORES, DialRequest

JSON = "application/json"
Schema = dict[str, Any]

PROBLEMS = {
    401: "The token is missing or wrong.",
    403: "This server is read-only, or accepts no observations.",
    408: "The request took too long to arrive.",
    412: "The dial's version is not the one in If-Match.",
    413: "The request is too large.",
    415: "The content type is not JSON.",
    422: "The request is not valid.",
    500: "Internal error.",
    503: "A file of the server can't be read or written.",
}
TOKEN: Schema = {"security": [{"token": []}]}
TOLERANCE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
OPTIONAL_TOLERANCE: Schema = {"anyOf": [TOLERANCE, {"type": "null"}]}
IF_MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "The version that the change is based on, in quotes.",
    "schema": {"type": "string", "maxLength": 100},
}
DOCUMENT: Schema = {
    "content": {JSON: {"schema": {"type": "object"}}},
    "description": "The document.",
}


def answers(model: type[BaseModel] | None, *problems: int) -> dict[int | str, Schema]:
    """Return the answers of an operation: its model on success, and the possible problems."""
    found: dict[int | str, Schema] = {} if model is None else {200: {"model": model}}
    for status in (*problems, 500):
        found[status] = {"model": Problem, "description": PROBLEMS[status]}
    return found


def predict_body(decider: Decider) -> Schema:
    """Return the body of a prediction request."""
    rows = _array(_row(decider, tolerance=OPTIONAL_TOLERANCE), MOST_ROWS)
    return _body(_object({"rows": rows, "tolerance": OPTIONAL_TOLERANCE}, ["rows"]))


def dial_body() -> Schema:
    """Return the body of a change to the dial."""
    return _body(DialRequest.model_json_schema())


def observe_body(decider: Decider) -> Schema:
    """Return the body of an observation request: scores with groups, or rows."""
    label: Schema = {"enum": [*decider.labels, None]}
    rows = _object({"rows": _array(_row(decider, label=label), MOST_ROWS)}, ["rows"])
    if not decider.swept:
        return _body(rows)
    scores = _array({"type": "number", "minimum": -1e308, "maximum": 1e308}, MOST_SCORES)
    groups = _array(_group(decider), MOST_SCORES)
    required = ["scores"] + (["groups"] if len(decider.groups) > 1 else [])
    given = {"scores": scores, "groups": groups, "labels": _array(label, MOST_SCORES)}
    return _body({"oneOf": [_object(given, required), rows]})


def _row(decider: Decider, **properties: Schema) -> Schema:
    required = ["features"] + (["group"] if decider.unnamed is None else [])
    features = {"features": decider.layout.schema(), "group": _group(decider)}
    return _object(features | properties, required)


def _group(decider: Decider) -> Schema:
    names = [json_name(name) for name in decider.frontier.groups]
    names += [name for name in decider.merged if name not in names]
    return {"enum": names + ([] if decider.unnamed is None else [None])}


def _body(content: Schema) -> Schema:
    return {"requestBody": {"required": True, "content": {JSON: {"schema": content}}}}


def _object(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _array(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def add_token(app: FastAPI) -> None:
    """Add the bearer token to the application's OpenAPI document."""

    def document() -> Schema:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                servers=app.servers or None,
            )
            schemes = {"token": {"type": "http", "scheme": "bearer"}}
            found.setdefault("components", {})["securitySchemes"] = schemes
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
