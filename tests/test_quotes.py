"""Every number that a page quotes from a study is what the study's records say."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairdial.bench.comparisons import claims, key_figures
from fairdial.bench.curves import open_study
from fairdial.bench.hypervolume import make_reference
from fairdial.bench.report import report_blocks
from fairdial.bench.writers import to_markdown

ROOT = Path(__file__).parent.parent
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "quote.py"))
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if re.search(r"<!--\s+(quote|figure)\s", page.read_text("utf-8"))
]
STORED = [page.parents[1] for page in sorted((ROOT / "docs" / "results").glob("*/report/*.md"))]
VERIFIED = sorted((ROOT / "docs" / "results").glob("*/verified.txt"))
STUDY = "frontier/auto"
FIRST, SECOND = "AutoDial", "gradient boosting"


@pytest.mark.parametrize("document", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_quotes_are_what_the_records_say(document: Path) -> None:
    text = document.read_text("utf-8")
    again = SCRIPT["fill"](text)
    wrong = [
        f"{' '.join(mark[0].split())}{mark[3]}, but the page has {shown[3]}"
        for shown, mark in zip(
            SCRIPT["MARKED"].findall(text), SCRIPT["MARKED"].findall(again), strict=True
        )
        if shown != mark
    ]
    assert wrong == []


@pytest.mark.parametrize("document", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_quote_is_closed(document: Path) -> None:
    text = document.read_text("utf-8")
    started = len(re.findall(r"<!--\s+(?:quote|figure)\s", text))
    found = [mark for mark in SCRIPT["MARKED"].findall(text) if mark[1] != "python"]
    assert len(found) == started
    assert not any("<!--" in mark[3] for mark in found)


def test_the_page_of_theorems_has_every_line_of_the_record_of_certificates() -> None:
    record = json.loads((ROOT / "docs/results/certificates/groups.json").read_text("utf-8"))
    page = (ROOT / "docs/confidence.md").read_text("utf-8")
    laws, five, *_ = record["tables"].values()
    five = [{name: text for name, text in line.items() if name != "theorem"} for line in five]
    for line in laws + five:
        cells = {**line, "criterion": line.get("criterion", "").replace("_", " ")}
        assert f"| {' | '.join(cells[name] for name in line)} |" in page
    lines = [text for text in page.splitlines() if text.count("|") in (6, 8) and "%" in text]
    assert len(lines) == len(laws) + len(five)


@pytest.mark.parametrize("folder", STORED, ids=[folder.name for folder in STORED])
def test_a_stored_report_is_what_its_records_give(folder: Path) -> None:
    study = open_study(folder)
    parts = key_figures(study)
    blocks = report_blocks(study, parts, claims(study.plan, parts))
    text = (folder / "report" / "report.md").read_text("utf-8")
    assert text == to_markdown(study.plan.title, blocks)


def test_a_wrong_number_is_replaced_and_line_breaks_are_kept() -> None:
    mark = f'<!-- quote {STUDY} compas difference "{FIRST}" "{SECOND}" -->'
    right = SCRIPT["fill"](f"it is {mark}0<!-- end -->.")
    value = re.search(r"-->(.*?)<!--", right)[1]
    assert re.fullmatch(r"[+-]\d\.\d\d ± \d\.\d\d", value)
    broken = right.replace(" ± ", " ±\n  ")
    assert SCRIPT["fill"](broken) == broken
    assert SCRIPT["fill"](right.replace(value[:4], "+9.9")) == right


def test_quotes_agree_with_what_the_curves_give() -> None:
    """Each quantity again, from the trials."""
    study = open_study(ROOT / "docs" / "results" / f"{STUDY}.toml")
    (panel,) = (panel for panel in study.panels if panel.dataset == "compas")
    mine, theirs = panel.of(FIRST), panel.of(SECOND)

    def say(quantity: str) -> str:
        return str(SCRIPT["quote"](f"{STUDY} compas {quantity}"))

    gap = study.plan.gaps[0]
    at = np.array([[t.matched([g])[0] for g in study.plan.gaps] for t in mine])
    assert say(f'accuracy "{FIRST}" {gap:g}') == f"{np.nanmean(at[:, 0]):.4f}"
    other = np.array([[t.matched([g])[0] for g in study.plan.gaps] for t in theirs])
    off = np.nanmean(100 * (at - other), axis=1)
    assert say(f'mean "{FIRST}" "{SECOND}"') == f"{off.mean():+.2f}"
    assert say(f'error "{FIRST}" "{SECOND}"') == f"{off.std(ddof=1) / len(off) ** 0.5:.2f}"
    single = 100 * (at - other)[:, 0]
    assert say(f'mean "{FIRST}" "{SECOND}" {gap:g}') == f"{single[~np.isnan(single)].mean():+.2f}"
    trials = [trial for name in panel.compared for trial in panel.of(name)]
    reference = make_reference([trial.points for trial in trials])
    areas = np.array([reference.hv(trial.points) for trial in mine])
    assert say(f'hv "{FIRST}"') == f"{areas.mean():.4f} ± {areas.std():.4f}"
    cases = np.concatenate([trial.held for trial in mine])
    assert say(f'held "{FIRST}" :.3f') == f"{np.nanmean(cases):.3f}"
    sure = np.concatenate([trial.certified_held for trial in mine])
    assert say(f'certified "{FIRST}" :.3f') == f"{np.mean(~np.isnan(sure)):.3f}"
    assert say(f'splits "{FIRST}"') == str(len(mine))
    low, high = map(float, say(f'interval "{FIRST}" "{SECOND}"').split(" to "))
    assert low < off.mean() < high
    assert float(say(f'detectable "{FIRST}" "{SECOND}"')) > 0
    assert 0 <= float(say(f'p "{FIRST}" "{SECOND}" hv :.5f').removeprefix("below ")) <= 1


@pytest.mark.parametrize("file", VERIFIED, ids=[file.parent.name for file in VERIFIED])
def test_what_was_repeated_are_trials_of_the_study(file: Path) -> None:
    """And every line of them is counted by the quotes of one data set and criterion."""
    study = open_study(file.parent)
    made = {
        f"{c['dataset']}, {c['criterion']}, {c['method']['name']}, seed {c['seed']}"
        for c in (record["config"] for record in study.records)
    }
    lines = [line for line in file.read_text("utf-8").splitlines() if ": " in line]
    trials = [re.match(r"(?:same|differs): (.+?, seed \d+)", line)[1] for line in lines]
    assert len(trials) == len(set(trials)) > 0
    assert set(trials) <= made
    panels = dict.fromkeys(f"{p.dataset}/{p.criterion}" for p in study.panels)
    counts = [
        SCRIPT["quote"](f"{file.parent.name} {panel} repeated").split(" of ")
        for panel in panels
        if any(trial.startswith(panel.replace("/", ", ")) for trial in trials)
    ]
    assert sum(int(count) for _, count in counts) == len(trials)
    assert sum(int(same) for same, _ in counts) == sum(line.startswith("same") for line in lines)


def test_a_table_of_the_report_is_quoted_whole() -> None:
    text = SCRIPT["quote"](f"{STUDY} compas table matched").strip().splitlines()
    assert text[0].startswith("| method | gap ")
    assert {line.split("|")[1].strip() for line in text[2:]} == {
        "AutoDial",
        "gradient boosting",
        "small trees",
        "trees and logistic regression",
        "logistic regression",
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{STUDY} compas accuracy magic 0.05", "magic"),
        (f'{STUDY} compas accuracy "{FIRST}" 0.31', "0.31"),
        (f'{STUDY} utkface accuracy "{FIRST}" 0.05', "utkface"),
        (f'{STUDY} compas beauty "{FIRST}"', "beauty"),
        (f'{STUDY} compas accuracy "{FIRST}"', "gap"),
        (f'{STUDY} compas p "{FIRST}" "{SECOND}" grid', "inverted-hv"),
        (f'{STUDY} compas change "{SECOND}"', "records"),  # boosting has no epochs
    ],
)
def test_a_quote_that_the_records_dont_have_is_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        SCRIPT["fill"](f"<!-- quote {text} -->0<!-- end -->")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("magic 1,000,000 fairdial", "magic"),
        ("dial 1,000,001 fairdial", "1,000,001"),
        ("dial 1,000,000 beauty", "beauty"),
    ],
)
def test_a_figure_that_the_benchmarks_did_not_print_is_refused(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        SCRIPT["fill"](f"<!-- figure {text} -->0<!-- end -->")
