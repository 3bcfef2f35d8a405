"""The site builds without warnings, needs no network, has no broken links and can be searched."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fairdial
import fairdial.datasets
from fairdial import metrics
from fairdial.core import certificates as confidence

pytest.importorskip(
    "sphinx", reason="needs the extra docs: pip install '.[docs]' -c constraints.txt"
)

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("_build", "gallery", "generated", "backreferences", "__pycache__")
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """The links of a page, the files it loads, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        if tag in LOADS and LOADS[tag] in found:
            self.loads.add(found[LOADS[tag]])


def build(copy: Path) -> None:
    """Build the site from a copy; another test runs the examples."""
    copy.mkdir()
    (copy / "src").symlink_to(ROOT / "src")
    shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns(*GENERATED))
    shutil.copytree(ROOT / "benchmarks", copy / "benchmarks")
    for file in ROOT.glob("*.md"):
        shutil.copy(file, copy)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, "--quiet", "-D", "plot_gallery=0", str(copy / "docs"), str(copy / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site, which parallel test processes share."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with locked(shared / "site.lock"):
        if not (shared / "site").exists():
            build(shared / "site")
    return shared / "site" / "html"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_pages_load_nothing_from_a_network(pages: dict[Path, Page]) -> None:
    loads = {(path.name, load) for path, page in pages.items() for load in page.loads}
    assert loads
    assert not {(name, load) for name, load in loads if urlsplit(load).netloc}


def test_styles_load_nothing_from_a_network(site: Path) -> None:
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not [s for s in styles if re.search(r"(url\(|@import)\s*['\"]?\s*(https?:)?//", s)]


def test_formulas_are_drawn_by_a_file_of_the_site(site: Path, pages: dict[Path, Page]) -> None:
    (script,) = (load for load in pages[site / "confidence.html"].loads if "tex-svg" in load)
    assert (site / script.split("?")[0]).stat().st_size > 1_000_000


def test_links_and_files_of_every_page_are_there(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            known = pages[target].places if target in pages else {place}
            if "_modules" in path.parts:  # sphinx's links from sources mix up names of one module
                known = {*known, place}
            if not target.exists() or (place and place not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_every_public_name_has_a_page(site: Path) -> None:
    names = [f"fairdial.{name}" for name in fairdial.__all__]
    names += [f"fairdial.datasets.{name}" for name in fairdial.datasets.__all__]
    for module in (metrics, confidence):
        home = module.__name__
        own = [n for n, thing in vars(module).items() if getattr(thing, "__module__", "") == home]
        names += [f"{home}.{name}" for name in own if not name.startswith("_")]
    missing = [n for n in names if not (site / "api" / "generated" / f"{n}.html").is_file()]
    assert not missing


SEARCHES = {  # what people type, and the page they should find
    "monitor": "monitoring",
    "drift": "monitoring",
    "alerts": "monitoring",
    "LightGBM": "lightgbm",
    "XGBoost": "xgboost",
    "CatBoost": "catboost",
    "threads": "threads",
    "Docker": "threads",
    "Kubernetes": "threads",
    "sample_weight": "faq",
    "class_weight": "faq",
    "MLflow": "faq",
    "polars": "faq",
    "legal": "faq",
    "equalized odds": "faq",
    "multiclass": "faq",
    "GridSearchCV": "scikit-learn",
    "Parquet": "large",
    "Spark": "large",
    "torchrun": "parallel",
    "ONNX": "onnx",
    "fairlearn": "peers",
    "images": "pictures",
    "CSV": "csv",
    "time limit": "threads",
    "criterion": "criteria",
    "leveling up": "criteria",
    "four-fifths": "combining",
    "strata": "combining",
    "costs": "costs",
    "budget": "costs",
    "weights": "costs",
    "utility": "costs",
    "error-parity": "peers",
    "lotteries": "dial",
}


@pytest.mark.parametrize(("words", "document"), SEARCHES.items())
def test_search_finds_a_document_by_its_titles(site: Path, words: str, document: str) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    number = index["docnames"].index(document)
    titles = [t for t, places in index["alltitles"].items() if number in [p[0] for p in places]]
    assert words.lower() in " ".join(titles).lower()
