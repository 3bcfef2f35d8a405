"""GFB of fairdial 0.3, which lacks options of the algorithm, loads and decides as it did."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial.io.manifest import digest_of

ARCHIVE = Path(__file__).parents[1] / "data" / "gfb-0.3.tar.xz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "gfb-0.3"


def test_gfb_loads_and_decides_as_before(folder: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(folder / "rows.csv")
    groups = rows.pop("group")
    old = fairdial.load(folder / "gfb")
    assert (old.outer, old.order, old.schedules) == ("adam", "together", None)
    old.save(tmp_path / "again")
    for model in (old, fairdial.load(tmp_path / "again")):
        for tolerance, decisions in json.loads((folder / "expected.json").read_text()).items():
            found = model.predict(rows, sensitive_features=groups, tolerance=float(tolerance))
            assert np.array_equal(found, [int(decision) for decision in decisions])


def test_only_old_manifests_may_lack_parameters(folder: Path) -> None:
    place = folder / "gfb" / "manifest.json"
    body = json.dumps(json.loads(place.read_text()) | {"version": 4}).encode()
    place.write_bytes(body)
    place.with_name("manifest.sha256").write_bytes(digest_of(body))
    with pytest.raises(fairdial.ModelFileError):
        fairdial.load(folder / "gfb")
