"""Folders that are not what was saved: each is refused by a clear error, none by another."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import (
    EPO,
    GFB,
    YOTO,
    FairBayes,
    FairdialWarning,
    ModelFileError,
    Network,
)
from fairdial.datasets import make_gaussian

DATA = make_gaussian(2000, random_state=0)
OTHER = make_gaussian(1900, random_state=1)
NET = Network(members=2, hidden=(4,), head=3, epochs=2)
MODELS = {
    "GFB": GFB(network=NET),
    "FairBayes": FairBayes(LogisticRegression(), recalibrate="group", per_group=True),
    "EPO": EPO(2, network=NET),
    "YOTO": YOTO(network=NET, film=(4, 1)),
}
KEY = b"a key of some bytes"
Forge = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with saved models; not to be changed."""
    place = tmp_path_factory.mktemp("saved")
    for data, suffix in ((DATA, ""), (OTHER, " of others")):
        for name, model in MODELS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FairdialWarning)
                model.set_params(random_state=0)
                model.fit(data.X, data.y, sensitive_features=data.groups)
            model.save(place / f"{name}{suffix}", key=KEY)
    return place


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        return Path(shutil.copytree(saved / name, tmp_path / name))

    return make


def forge(folder: Path, change: Forge | None = None, **files: bytes) -> None:
    """Change manifest and files, and make all hashes right again."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name, body in files.items():
        (folder / name).write_bytes(body)
        manifest["files"][name] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
    if change is not None:
        change(manifest)
    body = json.dumps(manifest).encode()
    path.write_bytes(body)
    digest = f"{hashlib.sha256(body).hexdigest()}  manifest.json\n"
    (folder / "manifest.sha256").write_text(digest)


def arrays(folder: Path, name: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change a file of arrays, and make all hashes right again."""
    found = dict(load_arrays((folder / name).read_bytes()))
    edit(found)
    forge(folder, **{name: save_arrays(found)})


def refused(folder: Path, pattern: str) -> None:
    with pytest.raises(ModelFileError, match=pattern):
        fairdial.load(folder)


# ---- accidents: found by the hash --------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_file_is_needed_and_checked(name: str, copy: Callable[[str], Path]) -> None:
    folder = copy(name)
    files = sorted(path.name for path in folder.iterdir())
    assert {"MODEL_CARD.md", "frontier.safetensors", "manifest.json"} < set(files)
    for file in files:
        if file == "manifest.sig":  # looked at with a key only
            continue
        path, whole = folder / file, (folder / file).read_bytes()
        path.unlink()
        refused(folder, f"`{file}`")
        for body in (whole[:-1], whole[: len(whole) // 2], whole + b"\0", b""):
            path.write_bytes(body)
            refused(folder, f"`{file}`")
        path.write_bytes(whole)
    assert fairdial.load(folder, key=KEY).model_hash_ == fairdial.load(folder).model_hash_


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_no_altered_byte_goes_unnoticed(saved: Path, tmp_path: Path, data: Any) -> None:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved / data.draw(st.sampled_from(list(MODELS))), folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    body = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(body)
    with pytest.raises(ModelFileError, match=path.name):
        fairdial.load(folder, key=KEY)


def test_a_file_of_another_model_is_refused(copy: Callable[[str], Path]) -> None:
    for name in MODELS:
        folder, other = copy(name), copy(f"{name} of others")
        for file in ("frontier.safetensors", "manifest.json", "MODEL_CARD.md"):
            whole = (folder / file).read_bytes()
            (folder / file).write_bytes((other / file).read_bytes())
            refused(folder, f"`{file}`")
            (folder / file).write_bytes(whole)


# ---- forgeries: hashes are right, the signature isn't -------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_frontier_of_another_model_is_refused(name: str, copy: Callable[[str], Path]) -> None:
    folder = copy(name)
    other = copy(f"{name} of others") / "frontier.safetensors"
    forge(folder, **{"frontier.safetensors": other.read_bytes()})
    refused(folder, "`frontier.safetensors`")


@pytest.mark.parametrize("name", ["GFB", "EPO", "YOTO"])
def test_forged_weights_are_refused(name: str, copy: Callable[[str], Path]) -> None:
    def first(found: dict[str, Any]) -> str:
        return next(key for key in found if key.endswith("head.layers.0.weight"))

    edits: list[Callable[[dict[str, Any]], Any]] = [
        lambda w: w[first(w)].fill(np.nan),
        lambda w: w[first(w)].fill(np.inf),
        lambda w: w.update({first(w): w[first(w)][:, :-1]}),
        lambda w: w.update({first(w): w[first(w)].astype(np.float16)}),
        lambda w: w.pop(first(w)),
        lambda w: w.update(more=np.zeros(3)),
    ]
    for edit in edits:
        folder = copy(name)
        arrays(folder, "weights.safetensors", edit)
        refused(folder, "`weights.safetensors`")
        shutil.rmtree(folder)


def narrow(encoder: dict[str, Any]) -> bytes:
    encoder["columns"][0]["edges"] = encoder["columns"][0]["edges"][:5]
    return json.dumps(encoder).encode()


def test_forged_encoders_are_refused(copy: Callable[[str], Path]) -> None:
    folder = copy("GFB")
    whole = (folder / "encoder.json").read_bytes()
    bodies = [
        b"",
        b"{}",
        b"null",
        b"[" * 10**5,
        whole.replace(b'"version": 1', b'"version": 2'),
        whole.replace(b'"version": 1', b'"version": 1, "version": 1'),
        whole.replace(b'"scale": ', b'"scale": NaN, "more": '),
        whole.replace(b'"numeric"', b'"magic"'),
    ]
    for body in bodies:
        forge(folder, **{"encoder.json": body})
        refused(folder, "`encoder.json`")
    forge(folder, **{"encoder.json": narrow(json.loads(whole))})
    refused(folder, "as many features as the encoder gives")


def test_forged_objects_are_refused(copy: Callable[[str], Path]) -> None:
    folder = copy("FairBayes")
    for body in (b"", b"PK", b"cos\nabort\n(tR."):
        forge(folder, **{"objects.skops": body})
        refused(folder, "`objects.skops`")
    other = copy("FairBayes of others")
    forge(other, lambda m: m.update(groups=None))
    refused(other, "`manifest.json`")


MANIFESTS: list[tuple[str, Forge]] = [
    ("GFB", lambda m: m.pop("method")),
    ("GFB", lambda m: m.update(method="Exec")),
    ("GFB", lambda m: m.update(method="FairBayes")),
    ("GFB", lambda m: m.update(method=["GFB"])),
    ("GFB", lambda m: m["parameters"].pop("aux")),
    ("GFB", lambda m: m.update(training=[])),
    ("GFB", lambda m: m["training"].update(rows="many")),
    ("GFB", lambda m: m["training"].update(rows=0)),
    ("GFB", lambda m: m["training"].update(asked=3)),
    ("GFB", lambda m: m["training"].pop("ended")),
    ("GFB", lambda m: m["training"].update(chosen="gfb")),
    ("GFB", lambda m: m["training"].update(chosen="gfb", why=3)),
    ("GFB", lambda m: m["training"].update(chosen="gfb", why="so\x1b[2J")),
    ("GFB", lambda m: m["parameters"].update(more=1)),
    ("GFB", lambda m: m["parameters"].update(network={"$network": {"more": 1}})),
    ("GFB", lambda m: m["parameters"].update(network={"$object": "none"})),
    ("GFB", lambda m: m["parameters"].update(criterion={"$criterion": "mine"})),
    ("GFB", lambda m: m["parameters"].update(tolerance={"$eval": "1"})),
    ("GFB", lambda m: m["parameters"].update(tolerance=7)),
    ("GFB", lambda m: m["parameters"].update(tolerance="x")),
    ("GFB", lambda m: m["parameters"].update(tolerance=[0.1, 0.2])),
    ("GFB", lambda m: m.pop("frontier")),
    ("GFB", lambda m: m.update(classes={"$array": ["<U65536", [0] * 100_000]})),
    ("GFB", lambda m: m.update(classes=[0, 1])),
    ("GFB", lambda m: m.update(classes={"$array": ["<i8", [1, 1]]})),
    ("GFB", lambda m: m.update(classes={"$array": ["<i8", [0, 1, 2]]})),
    ("GFB", lambda m: m.update(classes=None)),
    ("GFB", lambda m: m["features"].update(count="1")),
    ("GFB", lambda m: m["features"].update(count=0)),
    ("GFB", lambda m: m["features"].update(names=["x", "y"])),
    ("GFB", lambda m: m["features"].update(names=[1])),
    ("GFB", lambda m: m["features"].update(dtypes=[["x"]])),
    ("GFB", lambda m: m["features"].update(dtypes=[["x", {"categories": 3}]])),
    ("GFB", lambda m: m.update(groups=None)),
    ("GFB", lambda m: m.update(groups="group 0")),
    ("GFB", lambda m: m.update(groups={"$tuple": ["group 0"]})),
    ("GFB", lambda m: m["scorer"].update(kind="film")),
    ("GFB", lambda m: m["scorer"].update(kind="estimators")),
    ("GFB", lambda m: m["scorer"].update(kind=None)),
    ("GFB", lambda m: m["scorer"].update(nets=[])),
    ("GFB", lambda m: m["scorer"]["nets"][0].update(members=10**9)),
    ("GFB", lambda m: m["scorer"]["nets"][0]["trunk"].update(kind="own", type="os.system")),
    ("GFB", lambda m: m["scorer"]["nets"][0]["trunk"].update(kind="library", name="os.system")),
    ("GFB", lambda m: m["scorer"].update(encoder="object")),
    ("GFB", lambda m: m["frontier"].update(groups=["a", "b", "c"])),
    ("GFB", lambda m: m["frontier"].update(kind="measured")),
    ("GFB", lambda m: m["frontier"]["rows"][0].reverse()),
    ("GFB", lambda m: m["files"].pop("weights.safetensors")),
    ("GFB", lambda m: m["files"].pop("frontier.safetensors")),
    ("GFB", lambda m: m["files"].pop("encoder.json")),
    ("GFB", lambda m: m.update(files={})),
    ("FairBayes", lambda m: m["platt"]["slope"]["$array"][1].reverse() or m["platt"].popitem()),
    ("FairBayes", lambda m: m["platt"].update(groups={"$tuple": ["group 1", "group 0"]})),
    ("FairBayes", lambda m: m["platt"].update(slope={"$array": ["<f8", [1.0, -1.0]]})),
    ("FairBayes", lambda m: m["platt"].update(slope={"$array": ["<f8", [1.0]]})),
    ("FairBayes", lambda m: m["scorer"].update(per_group=False)),
    ("FairBayes", lambda m: m["files"].pop("plain.safetensors")),
    ("EPO", lambda m: m["scorer"]["settings"]["$array"][1].pop()),
    ("EPO", lambda m: m["scorer"]["settings"]["$array"][1].__setitem__(0, 0.123)),
    ("EPO", lambda m: m["scorer"].pop("settings")),
    ("YOTO", lambda m: m["scorer"].pop("condition")),
    ("YOTO", lambda m: m["scorer"]["condition"].update(kind="magic")),
    ("YOTO", lambda m: m["scorer"]["condition"].update(low=-1.0)),
    ("YOTO", lambda m: m["scorer"]["condition"].update(more=1)),
    ("YOTO", lambda m: m["scorer"]["nets"][0].update(film=False)),
]


@pytest.mark.parametrize("place", range(len(MANIFESTS)))
def test_a_manifest_of_no_model_is_refused(place: int, copy: Callable[[str], Path]) -> None:
    name, change = MANIFESTS[place]
    folder = copy(name)
    forge(folder, change)
    refused(folder, "`(manifest.json|weights.safetensors|frontier.safetensors|plain.safetensors)`")


def test_forged_tables_are_refused(copy: Callable[[str], Path]) -> None:
    folder = copy("GFB")
    for body in (
        b"[]",
        b'{"frontier_": null}',
        b'{"history_": {}}',
        b'{"history_": {"index": ["x"], "columns": {}}}',
        b'{"history_": {"index": [], "columns": {"a": [1]}, "more": NaN}}',
    ):
        forge(folder, **{"tables.json": body})
        refused(folder, "`tables.json`")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "net", "$tuple", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["$tuple", "$array", "kind", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in JSON."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    found = []
    for key, value in items:
        found.append((*at, key))
        if isinstance(value, (dict, list)):
            found += places(value, (*at, key))
    return found


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_a_forged_manifest_is_read_or_refused_and_nothing_else(
    saved: Path, tmp_path: Path, data: Any
) -> None:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved / data.draw(st.sampled_from(list(MODELS))), folder)

    def change(manifest: dict[str, Any]) -> None:
        *way, last = data.draw(st.sampled_from(places(manifest)))
        inner: Any = manifest
        for key in way:
            inner = inner[key]
        if data.draw(st.booleans()):
            del inner[last]
        else:
            inner[last] = data.draw(JSON)

    forge(folder, change)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FairdialWarning)
            model = fairdial.load(folder)
    except ModelFileError:
        return
    assert type(model).__name__ in MODELS


def test_extra_files_are_ignored(copy: Callable[[str], Path]) -> None:
    folder = copy("GFB")
    (folder / "README.md").write_text("Ours.")
    (folder / "objects.skops").write_bytes(b"cos\nabort\n(tR.")  # not in the manifest
    assert isinstance(fairdial.load(folder), GFB)
