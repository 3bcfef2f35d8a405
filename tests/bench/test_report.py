"""The report is a pure function of its records, stands alone, and survives what is missing."""

from __future__ import annotations

import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from fairdial.bench.comparisons import (
    HV,
    INVERTED,
    MATCHED,
    QUANTITIES,
    Claim,
    claims,
    key_figures,
)
from fairdial.bench.curves import Histogram, read_study
from fairdial.bench.figures import AREAS, _density, draw_areas, draw_differences
from fairdial.bench.plan import make_plan
from fairdial.bench.report import report_blocks, verdict, write_report
from fairdial.bench.statistics import SPLIT_RATIO, corrected, paired
from fairdial.bench.tables import warnings_table
from fairdial.bench.writers import to_markdown

ROWS = np.array([[300, 250], [150, 260]])
LOOSE = np.array([[0.10, 0.25], [0.55, 0.75]])
TIGHT = np.array([[0.17, 0.12], [0.66, 0.42]])
SIZE = 12
METHODS = [
    {"name": "EPO", "estimator": "EPO"},
    {"name": "FairBayes", "estimator": "FairBayes"},
    {"name": "GFB", "estimator": "GFB"},
    {"name": "null: FairBayes again", "same_as": "FairBayes", "seed_offset": 7},
]
NASTY = 'A & B <script>alert("é λ 中")</script> |_{x}^~% $y$ \\ #'


def make(**changes):
    data = {
        "title": "A test",
        "datasets": ["compas"],
        "seeds": [0, 5, 10],
        "methods": METHODS,
        "baseline": "FairBayes",
        "main": "GFB",
        "tolerances": [0.0, 0.05, 0.1],
        "gaps": [0.05, 0.1],
        "cost": {"epochs": 2},
    }
    return make_plan(data | changes)


def scores(rng):
    shares = rng.dirichlet(np.ones(8), (2, 2))
    counts = np.rint(shares * ROWS[..., None]).astype(int).tolist()
    low, high = sorted(rng.normal(0.0, 2.0, 2).tolist())
    return {"low": low, "high": high, "counts": counts, "fairest": [low, high]}


def study_record(config):
    text = repr((config["method"]["name"], config["seed"], config["dataset"]))
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    s = np.linspace(0.0, 1.0, SIZE)[:, None, None]
    rates = (1 - s) * LOOSE + s * TIGHT + 0.01 * rng.standard_normal((2, SIZE, 2, 2))
    here, there = np.rint(np.clip(rates, 0, 1) * ROWS).astype(int)
    gaps = np.abs(np.diff(here.sum(axis=1) / ROWS.sum(axis=0)))[:, 0]
    fits = [np.flatnonzero(gaps <= t) for t in config["tolerances"]]
    return {
        "config": config,
        "result": {
            "rows": {"calibration": ROWS.tolist(), "test": ROWS.tolist()},
            "states": {"state": list(range(SIZE)), "test": np.moveaxis(there, 0, -1).tolist()},
            "points": np.linspace(0, SIZE - 1, config["settings"]).astype(int).tolist(),
            "curve": list(range(SIZE)),
            "grid": [int(f[0]) if len(f) else int(gaps.argmin()) for f in fits],
            "feasible": [len(f) > 0 for f in fits],
            "certified": [None, None, SIZE - 2],
            "epochs": None,
            "groups": ["a", "b"],
            "logits": None if config["method"]["name"] == "EPO" else scores(rng),
        },
        "timing": {"fit_cpu": 60.0, "calibrate_cpu": 0.5},
        "environment": {"python": "3.11"},
        "warnings": ["the dial is short"],
        "code": "c0de",
    }


def cost_record(config):
    timing = {
        "train": 2.0,
        "adapt_one": 0.1,
        "adapt_many": 0.2,
        "predict_one": 0.3,
        "predict_many": 0.4,
    }
    return {"config": config, "result": {}, "timing": timing, "warnings": [], "code": "c0de"}


def records(plan):
    return [
        study_record(config) if config["kind"] == "study" else cost_record(config)
        for config in plan.trials()
    ]


def written(plan, found, folder):
    paths = write_report(plan, found, folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def text_of(plan, found):
    """The report as Markdown, without drawing anything."""
    study = read_study(plan, found)
    parts = key_figures(study)
    return to_markdown(plan.title, report_blocks(study, parts, claims(plan, parts)))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    plan = make()
    return written(plan, records(plan), tmp_path_factory.mktemp("report"))


class Page(HTMLParser):
    """Collects tags, and checks that they are closed in order."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


# ---- a pure function ---------------------------------------------------------------------------


def test_the_same_records_give_the_same_bytes(report, tmp_path):
    plan = make()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):  # somebody's own style
        assert written(plan, records(plan)[::-1], tmp_path) == report


def test_other_records_give_another_report(report, tmp_path):
    plan = make()
    found = records(plan)
    found[0]["result"]["states"]["test"][0][0][0] += 5
    other = written(plan, found, tmp_path)
    assert all(other[name] != report[name] for name in ("report.md", "report.html", "tables.tex"))


def test_densities_hold_all_rows_between_any_edges():
    counts = np.array([[[3, 1, 2], [0, 4, 1]], [[1, 1, 0], [2, 2, 2]]])
    histogram = Histogram(("a", "b"), np.array([-1.0, 0.0, 1.0, 2.0]), counts, np.zeros(2))
    same = _density(histogram, histogram.edges)
    assert same == pytest.approx(counts / counts.sum(axis=(0, 2))[:, None])
    wide = np.linspace(-3.0, 5.0, 31)
    mass = _density(histogram, wide) * np.diff(wide)
    assert mass.sum(axis=-1) == pytest.approx(counts.sum(axis=-1) / counts.sum(axis=(0, 2)))


def test_filled_areas_are_what_is_measured():
    """Monte Carlo over the patches of the figure: HV and inverted HV of its points."""
    plan = make(seeds=[0])
    study = read_study(plan, records(plan))
    parts = key_figures(study)
    figure = draw_areas(study, parts)
    reference = parts[0].volumes.reference
    rng = np.random.default_rng(0)
    (low, high), n = (-1.2, 2.2), 40_000
    at = rng.uniform(low, high, (n, 2))
    for ax, name in zip(figure.axes, (plan.baseline, plan.main), strict=True):
        points = parts[0].panel.of(name)[0].points
        for color, area in zip(AREAS, (reference.hv, reference.inverted_hv), strict=True):
            patches = [p for p in ax.patches if mpl.colors.to_hex(p.get_facecolor()) == color]
            inside = np.any([p.get_path().contains_points(at) for p in patches], axis=0)
            assert inside.mean() * (high - low) ** 2 == pytest.approx(area(points), abs=0.07)


def test_a_report_to_store_is_markdown_with_png_figures(report, tmp_path):
    plan = make()
    paths = write_report(plan, records(plan), tmp_path, markdown=True)
    stored = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in paths}
    assert {Path(name).suffix for name in stored} == {".md", ".png"}
    assert all(content == report[name] for name, content in stored.items())
    assert all(len(content) < 100_000 for content in stored.values())


def test_records_without_scores_have_no_figure_of_them(tmp_path):
    plan = make()
    older = records(plan)
    for record in older:
        record["result"].pop("logits", None)
    assert "figures/logits.png" not in written(plan, older, tmp_path)


def test_all_files_are_there_and_whole(report, tmp_path):
    figures = {"tradeoffs", "tolerances", "logits", "areas", "sensitivity", "differences"}
    assert set(report) == {"report.html", "report.md", "tables.tex"} | {
        f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")
    }
    assert all(report[f"figures/{name}.png"].startswith(b"\x89PNG") for name in figures)
    assert all(report[f"figures/{name}.pdf"].startswith(b"%PDF") for name in figures)
    (tmp_path / "report.md").write_text("an earlier one")
    paths = write_report(make(), [], tmp_path)
    assert "an earlier one" not in (tmp_path / "report.md").read_text("utf-8")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(paths)


def test_files_carry_no_date(report):
    for name, content in report.items():
        assert b"CreationDate" not in content, name
        assert b"<dc:date>" not in content, name


# ---- the page ----------------------------------------------------------------------------------


def test_the_page_needs_nothing_else(report):
    text = report["report.html"].decode()
    assert "http" not in text
    assert "@import" not in text
    page = Page(text)
    assert {"script", "link", "img", "iframe"}.isdisjoint(tag for tag, _ in page.tags)
    for _, attributes in page.tags:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))


def test_every_id_is_used_once_and_every_link_leads_somewhere(report):
    page = Page(report["report.html"].decode())
    assert len(page.ids) == len(set(page.ids))
    for _, attributes in page.tags:
        for name in ("href", "xlink:href"):
            if name in attributes:
                assert attributes[name][1:] in page.ids


def test_tables_have_captions_and_scopes_and_figures_have_descriptions(report):
    page = Page(report["report.html"].decode())
    assert page.count("table") > 10
    assert page.count("caption") == page.count("table")
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert all("aria-label" in attributes for tag, attributes in page.tags if tag == "svg")
    assert page.count("svg") == page.count("figcaption") == 6
    assert "prefers-color-scheme: dark" in report["report.html"].decode()
    assert ("meta", "viewport") in [(t, a.get("name")) for t, a in page.tags]


def test_the_sections_are_all_there(report):
    text = report["report.md"].decode()
    found = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert [title.split(".")[0] for title in found[1:-1]] == [str(n) for n in range(1, 11)]
    assert "incomplete" not in text
    assert "| the dial is short | 12 |" in text
    assert "12.1 minutes" in text


def test_markdown_tables_are_rectangular(report):
    tables = re.findall(r"(?:^\|.*\|\n)+", report["report.md"].decode(), flags=re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_latex_tables_are_rectangular_and_labeled_once(report):
    text = report["tables.tex"].decode()
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    assert len(tables) >= 8
    for columns, body in tables:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(columns) - 1}
        assert body.count(r"\toprule") == body.count(r"\midrule") == body.count(r"\bottomrule") == 1
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(labels) == len(set(labels)) == len(tables)
    assert "±" not in text
    for kind in ("hv", "hv-quartiles", "inverted-hv-quartiles", "matched", "cost"):
        assert f"tab:{kind}-compas-demographic-parity" in labels


# ---- names -------------------------------------------------------------------------------------


def test_names_with_special_characters_are_escaped_everywhere(tmp_path):
    methods = [
        *METHODS[:2],
        {"name": NASTY, "estimator": "GFB"},
        {"name": "_x", "estimator": "YOTO"},
    ]
    plan = make(methods=methods, main=NASTY, title=NASTY, notes=NASTY)
    found = written(plan, records(plan), tmp_path)
    text = found["report.html"].decode()
    assert "<script" not in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    page = Page(text)
    assert NASTY in page.text
    assert page.count("script") == 0
    tex = found["tables.tex"].decode()
    escaped = (
        r'A \& B $<$script$>$alert("é λ 中")$<$/script$>$ '
        r"\textbar{}\_\{x\}\textasciicircum{}\textasciitilde{}\% \$y\$ \textbackslash{} \#"
    )
    assert escaped in tex
    assert r"\<script>alert" in found["report.md"].decode()


# ---- what is missing ---------------------------------------------------------------------------


def test_an_incomplete_study_says_so_first():
    plan = make()
    found = records(plan)
    found[0] = {**found[0], "error": "DivergedError: <nan> in `x`"}
    text = text_of(plan, found[:-2])
    head, _, rest = text.partition("## ")
    assert "incomplete: of 15 trials, 2 are missing and 1 failed" in head
    assert r"DivergedError: \<nan> in \`x\`" in rest
    assert "Missing trials" in rest


def test_no_records_at_all_still_make_a_report():
    text = text_of(make(), [])
    assert "15 missing" in text
    assert "## 2." not in text


@pytest.mark.parametrize("name", [m["name"] for m in METHODS])
def test_a_method_without_trials_leaves_the_rest(name):
    plan = make()
    found = [r for r in records(plan) if r["config"]["method"]["name"] != name]
    text = text_of(plan, found)
    assert "incomplete" in text
    assert "\n## 9. " in text


def test_a_method_alone_has_nothing_to_be_compared_with():
    plan = make(methods=[METHODS[2]], baseline="GFB", cost={"epochs": 2})
    text = text_of(plan, records(plan))
    assert "Nothing to compare" in text
    assert "There is nothing to compare." in text


def test_a_data_set_without_trials_leaves_the_others():
    plan = make(datasets=["compas", "gaussian"])
    found = [r for r in records(plan) if r["config"]["dataset"] == "compas"]
    text = text_of(plan, found)
    assert "### compas, demographic parity" in text
    assert "### gaussian" not in text
    assert "No cost trial is finished: gaussian, demographic parity." in text


def test_several_data_sets_and_criteria_each_have_their_part():
    plan = make(
        datasets=["compas", "gaussian"], criteria=["demographic_parity", "equal_opportunity"]
    )
    text = text_of(plan, records(plan))
    for title in ("compas, equal opportunity", "gaussian, demographic parity"):
        assert text.count(f"### {title}") == 5
    assert text.count("paper: HV") == 1  # compas with demographic parity only


def test_one_seed_shows_nothing_and_says_so():
    plan = make(seeds=[0])
    text = text_of(plan, records(plan))
    assert "on one seed, which shows nothing" in text
    assert "fewer than two seeds" in text
    assert "nan" not in text.lower().replace("finance", "")


def test_a_plan_without_cost_says_so():
    data = {"title": "t", "datasets": ["compas"], "seeds": [0, 5], "methods": METHODS[:3]}
    plan = make_plan(data | {"tolerances": [0.0, 0.05, 0.1]})
    assert "no cost trials" in text_of(plan, records(plan))


def test_edge_cases_of_the_normalization_are_reported():
    plan = make()
    found = records(plan)
    for record in found:
        if record["config"]["kind"] == "study":
            record["result"]["points"] = [0] * 10  # one point a curve
    assert "1/(N-1) is set to 1" in text_of(plan, found)


def test_a_point_that_selects_nobody_is_no_better_than_a_constant():
    plan = make()
    found = records(plan)
    for record in found:
        if record["config"]["method"]["name"] == "EPO" and record["config"]["kind"] == "study":
            for groups in record["result"]["states"]["test"]:
                for column in groups:
                    column[0] = 0
    text = text_of(plan, found)
    table = text.partition("**HV and inverted HV")[2].partition("\n\n")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    place = lines[0].index("no better than constant")
    assert {line[1]: line[place] for line in lines[2:]} == {
        "EPO": "1.0",
        "FairBayes": "0.0",
        "GFB": "0.0",
    }


def test_the_report_says_how_often_and_on_which_rows():
    text = text_of(make(inits=3, train_rows=300, evaluate="validation"), [])
    assert "Initializations per split: 3." in text
    assert "at most 300 training and validation rows of each group" in text
    assert "validation rows; the test rows of these splits were not read" in text


def test_the_ratio_of_the_correction_is_that_of_whole_splits():
    for changes, said in (
        ({}, "here 0.154"),
        ({"train_rows": 300}, "though this study trains on fewer rows"),
        ({"evaluate": "validation"}, "though this study is measured on validation rows"),
    ):
        plan = make(**changes)
        text = text_of(plan, records(plan))
        assert said in text
        assert ("here 0.154" in text) == (not changes)


def test_the_figure_of_differences_has_both_intervals():
    plan = make()
    study = read_study(plan, records(plan))
    parts = key_figures(study)
    axes = draw_differences(study, parts, claims(plan, parts)).axes
    for ax, quantity in zip(axes, QUANTITIES, strict=True):
        drawn = [tuple(line.get_xdata()) for line in ax.lines]
        for name in ("EPO", "GFB", "null: FairBayes again"):
            plain = parts[0].difference(quantity, name, "FairBayes")
            for ends in (plain, corrected(plain, SPLIT_RATIO)):
                assert (ends.low, ends.high) in drawn


def test_several_versions_are_reported():
    plan = make()
    found = records(plan)
    found[0]["code"] = "other"
    assert "Trials differ in: code." in text_of(plan, found)


# ---- sentences ---------------------------------------------------------------------------------

SURE, UNSURE = [0.1, 0.11, 0.12, 0.1], [0.1, -0.2, 0.3, -0.15]


def claim(values, *, quantity=HV, null=None, adjusted=0.01):
    found = None if null is None else paired(null)
    return Claim("p", quantity, "a", "b", paired(values), quantity == INVERTED, found, adjusted)


def test_an_interval_without_zero_is_support_for_the_better_method():
    assert "supported, in favor of a (corrected 95% interval +0.0" in verdict(claim(SURE))
    assert "in favor of b" in verdict(claim(SURE, quantity=INVERTED))
    assert "not over all comparisons" not in verdict(claim(SURE))
    assert "not over all comparisons" in verdict(claim(SURE, adjusted=0.2))
    assert "Holm p below 0.001" in verdict(claim(SURE, adjusted=1e-7))


def test_an_interval_with_zero_shows_nothing_but_the_power():
    text = verdict(claim(UNSURE))
    smallest = corrected(paired(UNSURE), SPLIT_RATIO).detectable
    assert "no difference established" in text
    assert f"{smallest:.4f}" in text
    assert "points" in verdict(claim(UNSURE, quantity=MATCHED))


def test_a_plain_interval_without_zero_is_no_support():
    values = [0.0, 0.1, 0.2, 0.2, 0.2]
    plain, sure = paired(values), corrected(paired(values), SPLIT_RATIO)
    assert sure.low < 0 < plain.low
    text = verdict(claim(values))
    assert "no difference established" in text
    assert f"corrected 95% interval {sure.low:+.4f} to {sure.high:+.4f}; " in text
    assert f"plain {plain.low:+.4f} to {plain.high:+.4f}; 5 seeds" in text


def test_a_null_method_that_differs_as_much_makes_it_noise():
    assert verdict(claim(SURE, null=[-0.2, -0.2, -0.21])).endswith("noise.")
    small = verdict(claim(SURE, null=[0.01, 0.0, 0.01]))
    assert "the null method differs by +0.0067 ± 0.0033" in small
    assert "noise" not in small


def test_too_few_seeds_show_nothing():
    assert verdict(claim([])).endswith("no seed has both methods.")
    assert verdict(claim([0.2])).endswith("on one seed, which shows nothing.")


def test_warnings_that_differ_in_their_numbers_are_counted_together():
    plan = make()
    found = records(plan)
    for i, record in enumerate(found):
        record["warnings"] = [f"the gap is 0.{i + 100}", "the dial is short"][: 1 + i % 2]
    rows = dict(warnings_table(read_study(plan, found)).rows)
    assert rows["the gap is ..."] == str(len(found))
    assert rows["the dial is short"] == str(len(found) // 2)
    assert len(rows) == 2
