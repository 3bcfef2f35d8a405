"""Take the picture of the web page: ``python scripts/draw_page.py [FOLDER]``, in seconds.

Needs chromium and playwright. The page is of logistic regression on COMPAS.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes
from fairdial.datasets import load_compas
from fairdial.serve.page import write_page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
WIDTH = 1100


def main(folder: Path) -> None:
    """Train the model, write its page and take the picture."""
    from playwright.sync_api import sync_playwright

    data = load_compas("sex")
    model = FairBayes(LogisticRegression(max_iter=1000), tolerance=0.05, random_state=0)
    model.fit(pd.get_dummies(data.X).astype(float), data.y, sensitive_features=data.groups)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        page = write_page(
            model,
            Path(place) / "page.html",
            name="Who is predicted to be rearrested",
            people={"Female": "women", "Male": "men"},
            labels=("not rearrested", "rearrested"),
        )
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        view = browser.new_page(viewport={"width": WIDTH, "height": 900})
        view.goto(page.as_uri())
        view.locator("#page").wait_for()
        view.wait_for_timeout(500)  # the chart
        end = view.locator(".pair").bounding_box()
        assert end is not None
        height = end["y"] + end["height"] + 20
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
        view.screenshot(path=folder / "page.png", full_page=True, clip=clip)  # type: ignore[arg-type]
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
