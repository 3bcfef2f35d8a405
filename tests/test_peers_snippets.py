"""The snippets in docs/peers.md run; those of other libraries if they are installed."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "peers.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
PEERS = {  # module: section
    "fairlearn": "fairlearn",
    "aif360": "AIF360",
    "oxonfair": "OxonFair",
    "error_parity": "error-parity",
}
MEASURED = {  # names of decisions in the document, and the gap that they keep
    "_odds": "equalized_odds",
    "_ratio": "demographic_parity_ratio",
    "_up": "demographic_parity",
    "": "demographic_parity",
}


def snippets(section: str | None) -> Iterator[str]:
    """Yield the snippets of a section, or those before the first section."""
    found = re.split(r"^## (.*)$", TEXT, flags=re.MULTILINE)
    parts = dict(zip([None, *found[1::2]], found[::2], strict=True))
    yield from re.findall(r"```python\n(.*?)```", parts[section], flags=re.DOTALL)


def needs(code: str) -> set[str]:
    """Return the other libraries that a snippet imports."""
    return {module for module in PEERS if re.search(rf"^(from|import) {module}\b", code, re.M)}


def start() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "snippet"}
    for code in snippets(None):
        exec(code, names)
    return names


def check(names: dict[str, Any], whose: str) -> None:
    """Check that decisions on test rows keep their tolerance roughly."""
    test = names["test"]
    for ending, criterion in MEASURED.items():
        if f"{whose}{ending}" in names:
            given = {"sensitive_features": test.groups, "criterion": criterion}
            assert names["gap"](test.y, names[f"{whose}{ending}"], **given) < 0.25, ending


def test_every_section_shows_its_library() -> None:
    for module, section in PEERS.items():
        assert {module} in map(needs, snippets(section))
    assert not any(map(needs, snippets(None)))


def test_the_snippets_of_fairdial_run() -> None:
    for section in PEERS.values():
        names = start()
        for code in snippets(section):
            if not needs(code):
                exec(code, names)
        check(names, "ours")


@pytest.mark.parametrize("module", PEERS)
def test_the_snippets_of_a_library_run_and_keep_the_tolerance_roughly(module: str) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    names = start()
    logging.disable(logging.WARNING)  # they log on import
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for code in snippets(PEERS[module]):
                exec(code, names)
    finally:
        logging.disable(logging.NOTSET)
    check(names, "theirs")
    check(names, "ours")
