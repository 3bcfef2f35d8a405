"""The OpenAPI document is true: what it allows works, what it forbids is refused."""

from __future__ import annotations

import warnings

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from schemathesis import GenerationMode, checks

from fairdial.serve.startup import make_app

OPERATIONS = {
    "GET /healthz",
    "GET /readyz",
    "POST /v1/predict",
    "GET /v1/frontier",
    "GET /v1/dial",
    "PUT /v1/dial",
    "GET /v1/audit",
    "POST /v1/observe",
    "GET /v1/observe",
    "DELETE /v1/observe",
    "GET /metrics",
}
ASKED = ["POST /v1/predict", "PUT /v1/dial", "POST /v1/observe", "GET /v1/audit"]
EXAMPLES = 15


@pytest.fixture
def document(cases, settings):
    def make(name, **options):
        app = make_app(settings(cases(name), **options))
        return schemathesis.openapi.from_asgi("/openapi.json", app)

    return make


def unsaid(name, label):
    """Checks of what a document can't say, and other tests do."""
    found = []
    if label in ("POST /v1/observe", "PUT /v1/dial") or name == "array":
        # lengths agree; positions can be certified; no value is missing
        found.append(checks.positive_data_acceptance)
    if label == "PUT /v1/dial":
        found.append(checks.negative_data_rejection)  # headers are replaced by those below
    return found


def check(document, name, label, mode, token, examples=EXAMPLES):
    """Requests of one kind, drawn from the document, and everything about their answers."""
    method, path = label.split()
    operation = document[path][method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @given(case=operation.as_strategy(generation_mode=mode))
        @limits(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def each(case):
            headers = token | {"If-Match": "*"}
            case.call_and_validate(headers=headers, excluded_checks=unsaid(name, label))

        each()


def test_the_document_names_every_operation(document):
    found = {operation.ok().label for operation in document("pipeline").get_all_operations()}
    assert found == OPERATIONS


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_the_document_allows_is_answered_as_it_says(label, document, token):
    examples = EXAMPLES if label in ASKED else 2
    check(document("pipeline"), "pipeline", label, GenerationMode.POSITIVE, token, examples)


@pytest.mark.parametrize("label", ASKED)
def test_what_the_document_forbids_is_refused(label, document, token):
    check(document("pipeline"), "pipeline", label, GenerationMode.NEGATIVE, token)


@pytest.mark.parametrize("name", ["family", "array", "per group"])
@pytest.mark.parametrize("label", ["POST /v1/predict", "POST /v1/observe"])
def test_models_of_other_kinds_do_what_their_document_says(name, label, document, token):
    made = document(name)
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        check(made, name, label, mode, token, examples=6)


def test_a_read_only_server_does_what_its_document_says(document, token):
    made = document("pipeline", read_only=True, audit=None)
    method, path = "PUT", "/v1/dial"
    case = made[path][method].Case(body={"tolerance": 0.1, "reason": "x"})
    assert case.call_and_validate(headers=token).status_code == 403
