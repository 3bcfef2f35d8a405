"""The OpenAPI document is true: what it allows works, what it forbids is refused."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from fairdial.serve.run import make_app

TOKEN = "a-token-of-enough-letters"
HERE = "swept", "family"


def document(case, make):
    app = make_app(make(case))
    config = SchemathesisConfig.from_dict({"checks": {"use_after_free": {"enabled": False}}})
    return schemathesis.openapi.from_asgi("/openapi.json", app, config=config)


@pytest.fixture
def swept(cases, settings):
    return document(cases("pipeline"), settings)


@pytest.fixture
def family(cases, settings):
    return document(cases("family"), settings)


def check(case):
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})


LIMITS = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@schemathesis.pytest.from_fixture("swept").parametrize()
@LIMITS
def test_a_server_of_thresholds_does_what_its_document_says(case):
    check(case)


@schemathesis.pytest.from_fixture("family").include(path_regex="predict|observe").parametrize()
@LIMITS
def test_a_server_of_a_family_does_what_its_document_says(case):
    check(case)
