"""Configure Sphinx: Markdown with MyST, examples with sphinx-gallery.

The built pages load nothing from a network.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SITE = {  # files outside docs/ that are pages of the site
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "benchmarks",
}
EXAMPLES, GALLERY = "examples", "gallery"
REDIRECTS = {  # pages of earlier versions, and where their content went
    "everything": "getting-started",
    "guide": "getting-started",
    "learn": "tutorials",
    "project": "reference",
    "words": "limits",
}
MATHJAX = "tex-svg-full.js"  # a single file, fonts included
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # as in the tests
sys.path.insert(0, str(ROOT / "src"))
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

project = "fairdial"
author = "The fairdial developers"
project_copyright = "the fairdial developers, BSD-3-Clause"
version = release = importlib.metadata.version("fairdial")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", EXAMPLES, "**/*.ipynb"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [("py:mod", r"fairdial\..*")]  # internal modules have no page
default_role = "code"

# ---- Markdown, and MathJax without a network ---------------------------------------------------

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False
mathjax_path = MATHJAX


def mathjax_file() -> Path:
    """Return the path of MathJax, which sphinx-mathjax-offline ships."""
    for file in importlib.metadata.files("sphinx-mathjax-offline") or ():
        if file.name == MATHJAX:
            return Path(str(file.locate()))
    raise FileNotFoundError(f"sphinx-mathjax-offline has no {MATHJAX}; install the extra `docs`.")


# ---- API pages from docstrings ------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # the docstrings describe the types
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

# ---- examples -----------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": [EXAMPLES],
    "gallery_dirs": [GALLERY],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "doc_module": ("fairdial",),
    "backreferences_dir": "api/backreferences",
    "reference_url": {"fairdial": None},
    "ignore_repr_types": r"sklearn|fairdial\.(estimators|paper)|matplotlib",
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 60,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "copyfile_regex": r"$^",
    "write_computation_times": False,
}


def remove_leftovers() -> None:
    """Delete pages of examples and names that no longer exist."""
    shutil.rmtree(DOCS / "api" / "generated", ignore_errors=True)
    known = {path.stem for path in (DOCS / EXAMPLES).glob("*.py")} | {"index"}
    for page in (DOCS / GALLERY).glob("*.rst"):
        if page.stem not in known:
            page.unlink()


remove_leftovers()

# ---- appearance ----------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "fairdial"
html_static_path = ["_static"]
html_css_files = ["fairdial.css"]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "changelog": [], "gallery/index": []}
html_theme_options = {
    "logo": {
        "text": "fairdial",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copybutton_exclude = ".linenos, .gp, .go"


def relocate(text: str, document: Path) -> str:
    """Return Markdown text with its links changed to those of the site.

    In the repository, links point to files. On the site, some of these are pages with other names:
    the files in ``SITE``, and the examples, which are pages of the gallery.
    """

    def replace(found: re.Match[str]) -> str:
        target = (document.parent / found[0]).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return found[0]
        if target == DOCS / EXAMPLES:
            return f"/{GALLERY}/index.rst"
        if target.parent == DOCS / EXAMPLES and target.suffix == ".py":
            return f"/{GALLERY}/{target.stem}.rst"
        page = SITE.get(target.relative_to(ROOT).as_posix())
        if page is not None:
            return f"/{page}.md"
        if target.is_relative_to(DOCS) and target.is_file():
            return f"/{target.relative_to(DOCS).as_posix()}"
        return found[0]

    return LINK.sub(replace, text)


def read_source(app: Any, docname: str, content: list[str]) -> None:
    """Prepare a Markdown page for the site; pages in ``SITE`` get the text of their files."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".md":
        return
    files = {page: ROOT / file for file, page in SITE.items()}
    if docname in files:
        path = files[docname]
        content[0] = path.read_text(encoding="utf-8")
    content[0] = relocate(content[0], path)


def add_mathjax(app: Any, error: Exception | None) -> None:
    """Copy MathJax next to the pages."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(mathjax_file(), Path(app.outdir) / "_static" / MATHJAX)


def add_redirects(app: Any, error: Exception | None) -> None:
    """Write a page that forwards to the new address for each page of ``REDIRECTS``."""
    if error is None and app.builder.format == "html":
        for old, new in REDIRECTS.items():
            link = f'<meta http-equiv="refresh" content="0; url={new}.html">'
            page = f'<!doctype html><title>Moved</title>{link}<a href="{new}.html">Moved</a>\n'
            (Path(app.outdir) / f"{old}.html").write_text(page, encoding="utf-8")


def skip_foreign(
    _app: Any, what: str, _name: str, thing: Any, skip: bool, _options: Any
) -> bool | None:
    """Skip members that classes inherit from other libraries."""
    home = getattr(getattr(thing, "fget", thing), "__module__", None)
    foreign = callable(getattr(thing, "fget", thing)) and not str(home).startswith("fairdial")
    return True if what == "class" and foreign else skip or None


def setup(app: Any) -> None:
    """Connect the functions above to Sphinx."""
    app.connect("source-read", read_source)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("build-finished", add_mathjax)
    app.connect("build-finished", add_redirects)
