"""``fairdial dial`` and ``info``: the frontier's own figures, and who is moved."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fairdial
from fairdial import CannotCertifyError
from fairdial.cli.figures import plain
from fairdial.cli.rows import inputs, read_rows


@pytest.mark.parametrize("wish", [0.02, 0.1, 1.0])
def test_figures_are_those_of_the_frontier(wish: float, model: Path, answer: Any) -> None:
    told = answer("dial", model, "--tolerance", wish)
    point = fairdial.load(model).frontier_.at(wish)
    frame = point.to_frame()
    assert (told["tolerance"], told["accuracy"], told["gap"]) == (wish, point.accuracy, point.gap)
    assert told["setting"] == point.setting
    assert told["feasible"] is True
    assert told["criterion"] == "demographic_parity"
    assert told["rows"] == point.rows.sum()
    for column in frame:
        assert [group[column] for group in told["groups"]] == frame[column].tolist()
    assert (told["resting"], told["from"]) == (0.1, 0.1)


def test_who_is_moved_is_who_flips_on_the_calibration_rows(
    model: Path, place: Path, answer: Any
) -> None:
    out = place / "counted"
    answer("calibrate", model, place / "new.csv", "--out", out)
    found = fairdial.load(out)
    table = read_rows(found, place / "new.csv")
    for start, wish in ((0.3, 0.02), (0.02, 0.3), (0.1, 0.05)):
        told = answer("dial", out, "--tolerance", wish, "--from", start)
        moved = found.flips(inputs(found, table), start, wish)
        for line in told["moved"]:
            rows = moved[(table["region"] == line["group"]).to_numpy()]
            assert line["gained"] == (rows == 1).sum()
            assert line["lost"] == (rows == -1).sum()
            assert line["balance"] == rows.sum()
        assert any(line["balance"] for line in told["moved"])


def test_of_a_measured_family_only_the_balance_is_told(place: Path, answer: Any) -> None:
    out = place / "family"
    answer("train", place / "old.csv", "--label", "decision", "--positive", "approve", "--drop",
           "number,half", "--sensitive", "region", "--method", "yoto", "--epochs", 1, "--members",
           1, "--out", out)  # fmt: skip
    told = answer("dial", out, "--tolerance", 1, "--from", 0.05)
    after, before = (fairdial.load(out).frontier_.at(wish) for wish in (1.0, 0.05))
    change = (after.selected - before.selected).sum(axis=0)
    groups = ("north", "south")
    assert told["moved"] == [
        {"group": group, "balance": balance}
        for group, balance in zip(groups, change.tolist(), strict=True)
    ]
    assert "threshold" not in told["groups"][0]


def test_confidence_is_the_frontiers_or_its_refusal(model: Path, answer: Any, shell: Any) -> None:
    frontier = fairdial.load(model).frontier_
    told = answer("dial", model, "--tolerance", 0.25, "--confidence", 0.9)
    point = frontier.at(0.25, confidence=0.9)
    assert (told["gap"], told["certified_gap"]) == (point.gap, point.certified_gap)
    assert told["confidence"] == 0.9
    text = shell("dial", model, "--tolerance", 0.25, "--confidence", 0.9).stdout
    assert "With confidence 0.9 the gap on new rows is at most 0.2500." in text
    with pytest.raises(CannotCertifyError) as refusal:
        frontier.at(0.01, confidence=0.95)
    found = shell("dial", model, "--tolerance", 0.01, "--confidence", 0.95, code=1)
    assert found.stderr == f"Error: {refusal.value}\n".replace("`tolerance`", "--tolerance")


def test_a_tolerance_that_is_out_of_reach_is_told(model: Path, answer: Any, shell: Any) -> None:
    found = shell("dial", model, "--tolerance", 0)
    assert found.stderr.startswith("Warning: no state of the dial has a demographic_parity gap")
    assert found.stderr.count("\n") == 1
    assert "It is the smallest gap there is." in found.stdout
    assert answer("dial", model, "--tolerance", 0)["feasible"] is False


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (np.inf, "inf"),
        (-np.inf, "-inf"),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.True_, True),
        (pd.Timestamp("2020-01-01"), "2020-01-01 00:00:00"),
    ],
)
def test_what_json_does_not_know_is_a_word_or_null(value: Any, known: Any) -> None:
    assert plain(value) == known
    assert type(plain(value)) is type(known)


# ---- setting the dial --------------------------------------------------------------------------


def test_set_moves_the_resting_place_and_nothing_else(
    model: Path, place: Path, answer: Any, shell: Any
) -> None:
    copy = place / "moved"
    shutil.copytree(model, copy)
    before = fairdial.load(copy)
    found = shell("dial", copy, "--tolerance", 0.04, "--set")
    assert "rests at 0.04 now (before: 0.1)" in found.stderr
    after = fairdial.load(copy)
    assert after.tolerance == 0.04
    assert after.frontier_.to_json() == before.frontier_.to_json()
    assert after.model_hash_ != before.model_hash_
    assert answer("dial", copy)["tolerance"] == 0.04
    decided = answer("predict", copy, place / "new.csv", "--out", place / "moved.csv")
    assert decided["tolerance"] == 0.04
    assert decided["hash"] == after.model_hash_


def test_set_keeps_a_tolerance_only(model: Path, shell: Any) -> None:
    for given in ((), ("--tolerance", 0.2, "--confidence", 0.9)):
        found = shell("dial", model, "--set", *given, code=2)
        assert "--set must come with --tolerance and without --confidence" in found.stderr
    assert fairdial.load(model).tolerance == 0.1


def test_a_signed_model_stays_signed(place: Path, tmp_path: Path, shell: Any, answer: Any) -> None:
    key, out = tmp_path / "key", tmp_path / "signed"
    key.write_bytes(b"sixteen bytes and a few")
    shell("train", place / "old.csv", "--label", "decision", "--positive", "approve", "--drop",
          "number,half", "--sensitive", "region", "--method", "logistic", "--key-file", key,
          "--out", out)  # fmt: skip
    assert answer("info", out, "--key-file", key)["signed"] is True
    told = "--key-file must be given"
    assert told in shell("dial", out, "--tolerance", 0.3, "--set", code=2).stderr
    assert told in shell("calibrate", out, place / "new.csv", "--in-place", code=2).stderr
    new = tmp_path / "new"
    assert told in shell("calibrate", out, place / "new.csv", "--out", new, code=2).stderr
    assert not new.exists()
    for given, words in (((), "not checked: give --key-file"), (("--key-file", key), "checked: ")):
        assert f"signature       {words}" in shell("info", out, *given).stdout
        assert answer("info", out, *given)["signature_checked"] is bool(given)
    shell("dial", out, "--tolerance", 0.3, "--set", "--key-file", key)
    shell("calibrate", out, place / "new.csv", "--in-place", "--key-file", key)
    assert fairdial.load(out, key=key).tolerance == 0.3
    other = tmp_path / "other"
    other.write_bytes(b"another key of enough bytes")
    found = shell("dial", out, "--tolerance", 0.3, "--key-file", other, code=2)
    assert "was signed with another key, or altered" in found.stderr


# ---- what a model is ---------------------------------------------------------------------------


def test_info_tells_what_the_model_is(crossed: Path, answer: Any, shell: Any) -> None:
    told = answer("info", crossed)
    found = fairdial.load(crossed)
    assert told["hash"] == found.model_hash_
    assert (told["method"], told["estimator"]) == ("boosting", "FairBayes")
    assert told["training_rows"] + found.frontier_.rows.sum() == 1600
    assert told["trained"] == found.training_["ended"]
    assert told["criterion"] == "equal_opportunity"
    assert (told["label"], told["negative"], told["positive"]) == ("decision", "deny", "approve")
    assert told["sensitive"] == ["region", "sex"]
    assert told["features"] == found.feature_names_in_.tolist()
    assert [line["group"] for line in told["groups"]] == list(found.frontier_.groups)
    assert [line["rows"] for line in told["groups"]] == found.frontier_.rows.sum(axis=0).tolist()
    assert (told["tolerance"], told["signed"]) == (0.2, False)
    text = shell("info", crossed).stdout
    assert "selected means  decision = 'approve' (the other: 'deny')" in text
    assert "true positive rate" in text
    assert "method          boosting (FairBayes)" in text
    assert "signature       none" in text
    assert "calibration rows), south & M (" in text


def test_a_model_without_a_dial_is_told_apart(
    model: Path, place: Path, shell: Any, answer: Any
) -> None:
    found = fairdial.load(model)
    del found.frontier_
    found.save(place / "undialled")
    assert answer("info", place / "undialled")["frontier"] is None
    assert "It isn't calibrated yet" in shell("info", place / "undialled").stdout
    for command in (["dial"], ["predict", place / "new.csv", "--out", "-"]):
        told = shell(command[0], place / "undialled", *command[1:], code=2).stderr
        assert "MODEL must be calibrated" in told
    answer("calibrate", place / "undialled", place / "new.csv", "--in-place")
    assert fairdial.load(place / "undialled").frontier_.rows.sum() == 700


def test_an_altered_or_missing_model_is_refused(model: Path, place: Path, shell: Any) -> None:
    copy = place / "altered"
    shutil.copytree(model, copy)
    card = copy / "MODEL_CARD.md"
    card.write_bytes(card.read_bytes().replace(b"deny", b"fine"))
    assert "`MODEL_CARD.md` must have the SHA-256" in shell("info", copy, code=2).stderr
    card.write_bytes(card.read_bytes() + b" ")
    told = shell("info", copy, code=2).stderr
    assert f"it was altered after it was saved in '{copy}'" in told
    assert "MODEL must be a model's folder" in shell("dial", place / "nowhere", code=2).stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("frontier"),
        lambda m: m.pop("parameters"),
        lambda m: m["parameters"].pop("tolerance"),
        lambda m: m["parameters"].update(tolerance=7),
        lambda m: m["parameters"].update(tolerance="x"),
        lambda m: m["files"].pop("frontier.safetensors"),
    ],
)
def test_a_manifest_that_tells_of_no_dial_is_refused(
    change: Any, model: Path, tmp_path: Path, shell: Any
) -> None:
    forge(model, tmp_path / "forged", change)
    for command in ("info", "dial"):
        told = shell(command, tmp_path / "forged", code=2).stderr
        assert "`manifest.json` must tell of a model" in told


@pytest.mark.parametrize("name", ["classes", "features", "libraries", "label", "method"])
def test_a_manifest_that_leaves_something_out_is_refused(
    name: str, model: Path, tmp_path: Path, shell: Any
) -> None:
    forge(model, tmp_path / "forged", lambda m: m.pop(name))
    told = shell("info", tmp_path / "forged", code=2).stderr
    assert "`manifest.json` must tell of a model" in told


def forge(model: Path, folder: Path, change: Any) -> None:
    """A copy with another manifest, whose hash is right."""
    shutil.copytree(model, folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    body = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(body)
    told = f"{hashlib.sha256(body).hexdigest()}  manifest.json\n"
    (folder / "manifest.sha256").write_text(told)
