"""Fuzzing of request bodies: every one is answered, or refused without an error of the server."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FAIRDIAL_FUZZ_EXAMPLES", "30"))
PIECES = [b"\x00", b"\xff", b'"', b",", b"NaN", b"1e309", b"-0", b"{}", b"[]", b"null", b"\\u0000"]

NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(2**63), 1e308, -0.0])
TEXTS = st.sampled_from(["", "F", "M", "care", "\x00", "é", "x" * 500]) | st.text(max_size=5)
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def spots(data: Any) -> list[tuple[Any, Any]]:
    """Every container of JSON data with each of its keys."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    found = []
    for key, value in list(items):
        found.append((data, key))
        found += spots(value) if isinstance(value, dict | list) else []
    return found


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Return bytes of which some are cut out or put in."""
    at = draw(st.integers(0, len(body)))
    end = at + draw(st.integers(0, 20))
    return body[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=6)) + body[end:]


@st.composite
def bodies(draw: st.DrawFn, good: Any) -> bytes:
    """Return a request body: a good one with something else in it, any JSON, or damaged bytes."""
    data = json.loads(json.dumps(good))
    for _ in range(draw(st.integers(0, 3))):
        inner, key = draw(st.sampled_from(spots(data) or [({"": 0}, "")]))
        if draw(st.booleans()):
            inner[key] = draw(ANY)
        elif isinstance(inner, dict):
            inner[draw(TEXTS)] = draw(ANY)
    body = json.dumps(draw(ANY) if draw(st.integers(0, 9)) == 0 else data).encode()
    return draw(damaged(body)) if draw(st.booleans()) else body


@pytest.mark.parametrize("name", ["pipeline", "equalized odds"])
def test_a_hostile_request_is_answered_or_refused(name, client, cases, token):
    case = cases(name)
    server = client(case, open_observe=True)
    labels = set(case.model.classes_.tolist())
    groups = [row["group"] for row in case.rows(0, 2)]
    good = {
        "/v1/predict": {"rows": case.rows(0, 2), "tolerance": 0.1},
        "/v1/dial": {"tolerance": 0.2, "reason": "policy", "by": "Ann", "confidence": None},
        "/v1/observe": {"groups": groups, "scores": [0.5, -0.5]},
    }
    head = {"Content-Type": "application/json", **token}

    @given(st.data())
    @settings(max_examples=EXAMPLES, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
    def ask(data):
        path = data.draw(st.sampled_from(list(good)))
        body = data.draw(bodies(good[path]))
        send = server.put if path == "/v1/dial" else server.post
        answer = send(path, content=body, headers=head)
        assert answer.status_code in (200, 400, 413, 422), answer.text
        found = answer.json()
        assert ("detail" in found) == (answer.status_code != 200)
        if path == "/v1/predict" and answer.status_code == 200:
            assert len(found["rows"]) == len(json.loads(body)["rows"])
            assert {row["decision"] for row in found["rows"]} <= labels

    ask()
