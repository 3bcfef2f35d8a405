"""``fairdial dial`` and ``info``: the frontier's own figures, and whose decision changes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import GFB, CannotCertifyError, FairBayes, Network
from fairdial.cli.model_rows import read_rows
from fairdial.cli.points import gap_digits, json_value


@pytest.mark.parametrize("tolerance", [0.02, 0.1, 1.0])
def test_figures_are_those_of_the_frontier(tolerance: float, model: Path, answer: Any) -> None:
    result = answer("dial", model, "--tolerance", tolerance)
    point = fairdial.load(model).frontier_.at(tolerance)
    frame = point.to_frame()
    assert (result["tolerance"], result["accuracy"], result["gap"]) == (
        tolerance,
        point.accuracy,
        point.gap,
    )
    assert result["setting"] == point.setting
    assert result["feasible"] is True
    assert result["criterion"] == "demographic_parity"
    assert result["rows"] == point.counts.sum()
    for column in frame:
        assert [group[column] for group in result["groups"]] == frame[column].tolist()
    assert (result["resting"], result["from"]) == (0.1, 0.1)


def test_changes_are_those_of_the_calibration_rows(model: Path, place: Path, answer: Any) -> None:
    out = place / "counted"
    answer("calibrate", model, place / "new.csv", "--out", out)
    found = fairdial.load(out)
    rows = read_rows(found, place / "new.csv")
    for start, tolerance in ((0.3, 0.02), (0.02, 0.3), (0.1, 0.05)):
        result = answer("dial", out, "--tolerance", tolerance, "--from", start)
        moved = found.flips(rows.X, start, tolerance)
        for line in result["moved"]:
            flips = moved[(rows.groups == line["group"]).to_numpy()]
            assert line["gained"] == (flips == 1).sum()
            assert line["lost"] == (flips == -1).sum()
            assert line["balance"] == flips.sum()
        assert any(line["balance"] for line in result["moved"])


def test_of_a_family_only_the_balance_is_known(place: Path, answer: Any) -> None:
    out = place / "family"
    answer("train", place / "old.csv", "--label", "decision", "--positive", "approve", "--drop",
           "number,half", "--sensitive", "region", "--method", "yoto", "--epochs", 1, "--members",
           1, "--out", out)  # fmt: skip
    result = answer("dial", out, "--tolerance", 1, "--from", 0.05)
    after, before = (fairdial.load(out).frontier_.at(tolerance) for tolerance in (1.0, 0.05))
    change = (after.selected - before.selected).sum(axis=0)
    groups = ("north", "south")
    assert result["moved"] == [
        {"group": group, "balance": balance}
        for group, balance in zip(groups, change.tolist(), strict=True)
    ]
    assert "threshold" not in result["groups"][0]


COMMANDS = (("dial",), ("predict", "new.csv", "--out", "-"), ("evaluate", "new.csv"))


def in_folder(place: Path, command: tuple[str, ...], model: Path) -> list[Any]:
    """A command on a model, with its files."""
    name, *more = (place / word if word == "new.csv" else word for word in command)
    return [name, model, *more]


def test_confidence_is_the_frontiers_or_its_refusal(
    model: Path, place: Path, answer: Any, shell: Any
) -> None:
    frontier = fairdial.load(model).frontier_
    result = answer("dial", model, "--tolerance", 0.25, "--confidence", 0.9)
    point = frontier.at(0.25, confidence=0.9)
    assert (result["gap"], result["certified_gap"]) == (point.gap, point.certified_gap)
    assert result["confidence"] == 0.9
    assert "0.2500" in shell("dial", model, "--tolerance", 0.25, "--confidence", 0.9).stdout
    for flag in ((), ("--simultaneous",)):
        with pytest.raises(CannotCertifyError) as refusal:
            frontier.at(0.01, confidence=0.95, simultaneous=bool(flag))
        assert refusal.value.rows_needed is not None
        lines = {
            shell(*in_folder(place, command, model), "--tolerance", 0.01, "--confidence", 0.95,
                  *flag, code=1).stderr
            for command in COMMANDS
        }  # fmt: skip
        (line,) = lines
        assert line.startswith("Error: --tolerance")
        (table,) = re.findall(r"about ([\d,]+) rows\.$", line.strip())
        rows = 4 * refusal.value.rows_needed  # a quarter is held out
        assert rows <= int(table.replace(",", "")) <= 1.01 * rows


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_default_tolerance_names_no_option(
    command: tuple[str, ...], model: Path, place: Path, shell: Any
) -> None:
    given = (*in_folder(place, command, model), "--confidence", 0.999)
    assert shell(*given, code=1).stderr.startswith("Error: The default tolerance 0.1 ")
    assert shell(*given, "--tolerance", 0.1, code=1).stderr.startswith("Error: --tolerance 0.1 ")


def test_a_certificate_says_for_which_tolerances_it_holds(
    model: Path, crossed: Path, answer: Any, shell: Any
) -> None:
    for folder, tolerance in ((model, 0.3), (crossed, 0.7)):
        frontier = fairdial.load(folder).frontier_
        given = ("dial", folder, "--tolerance", tolerance)
        texts = set()
        for flag in ((), ("--simultaneous",)):
            certain = (*given, "--confidence", 0.9, *flag)
            point = frontier.at(tolerance, confidence=0.9, simultaneous=bool(flag))
            result, any_tolerance = answer(*certain), bool(flag)
            assert (result["gap"], result["certified_gap"]) == (point.gap, point.certified_gap)
            assert result["simultaneous"] is any_tolerance
            assert ("--simultaneous" in shell(*certain).stdout) == (not any_tolerance)
            texts.add(shell(*certain).stdout)
        assert len(texts) == 2
        assert answer(*given)["simultaneous"] is None
    one, whole = (
        fairdial.load(model).frontier_.at(0.3, confidence=0.9, simultaneous=flag)
        for flag in (False, True)
    )
    assert whole.gap < one.gap  # so that the two can be distinguished


@pytest.mark.parametrize("command", COMMANDS)
def test_simultaneous_needs_confidence(
    command: tuple[str, ...], model: Path, place: Path, refused: Any
) -> None:
    given = in_folder(place, command, model)
    refused(*given, "--simultaneous", option="--simultaneous", names=("--confidence",))


def test_an_unreachable_tolerance_draws_one_warning(narrow: Path, answer: Any, shell: Any) -> None:
    found = shell("dial", narrow, "--tolerance", 0)
    assert found.stderr.startswith("Warning: ")
    assert found.stderr.count("\n") == 1
    assert answer("dial", narrow, "--tolerance", 0)["feasible"] is False


@pytest.mark.parametrize(
    ("gap", "tolerance", "text"),
    [(0.04999, 0.05, "0.0500"), (0.00003, 0.0, "0.00003"), (0.0500002, 0.05, "0.0500002")],
)
def test_a_gap_above_the_tolerance_is_not_rounded_to_it(
    gap: float, tolerance: float, text: str
) -> None:
    point = SimpleNamespace(gap=gap, tolerance=tolerance, feasible=gap <= tolerance)
    assert gap_digits(point) == text  # type: ignore[arg-type]


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
def test_what_json_cannot_hold_is_text_or_null(value: Any, known: Any) -> None:
    assert json_value(value) == known
    assert type(json_value(value)) is type(known)


# ---- setting the default -----------------------------------------------------------------------


def test_set_changes_the_default_tolerance_and_nothing_else(
    model: Path, place: Path, answer: Any, shell: Any
) -> None:
    copy = place / "moved"
    shutil.copytree(model, copy)
    before = fairdial.load(copy)
    shell("dial", copy, "--tolerance", 0.04, "--set")
    after = fairdial.load(copy)
    assert after.tolerance == 0.04
    assert after.frontier_.to_json() == before.frontier_.to_json()
    assert after.model_hash_ != before.model_hash_
    assert answer("dial", copy)["tolerance"] == 0.04
    decided = answer("predict", copy, place / "new.csv", "--out", place / "moved.csv")
    assert decided["tolerance"] == 0.04
    assert decided["hash"] == after.model_hash_


def test_set_says_that_a_server_has_its_own_tolerance(
    model: Path, tmp_path: Path, shell: Any
) -> None:
    shutil.copytree(model, tmp_path / "m")
    given = ("dial", tmp_path / "m", "--tolerance", 0.04, "--set")
    assert "m.audit.sqlite" not in shell(*given).stderr
    (tmp_path / "m.audit.sqlite").touch()
    assert "m.audit.sqlite" in shell(*given).stderr
    assert shell(*given, "-q").stderr == ""


def test_set_stores_a_tolerance_only(model: Path, refused: Any) -> None:
    for given in ((), ("--tolerance", 0.2, "--confidence", 0.9)):
        refused("dial", model, "--set", *given, option="--set")
    assert fairdial.load(model).tolerance == 0.1


def test_a_signed_model_stays_signed(
    place: Path, tmp_path: Path, shell: Any, answer: Any, refused: Any
) -> None:
    key, out = tmp_path / "key", tmp_path / "signed"
    key.write_bytes(b"sixteen bytes and a few")
    shell("train", place / "old.csv", "--label", "decision", "--positive", "approve", "--drop",
          "number,half", "--sensitive", "region", "--method", "logistic", "--key-file", key,
          "--out", out)  # fmt: skip
    assert answer("info", out, "--key-file", key)["signed"] is True
    again = ("calibrate", out, place / "new.csv")
    refused("dial", out, "--tolerance", 0.3, "--set", option="--key-file")
    refused(*again, "--in-place", option="--key-file")
    refused(*again, "--out", tmp_path / "new", option="--key-file")
    assert not (tmp_path / "new").exists()
    for given in ((), ("--key-file", key)):
        assert answer("info", out, *given)["signature_checked"] is bool(given)
    shell("dial", out, "--tolerance", 0.3, "--set", "--key-file", key)
    shell("calibrate", out, place / "new.csv", "--in-place", "--key-file", key)
    assert fairdial.load(out, key=key).tolerance == 0.3
    other = tmp_path / "other"
    other.write_bytes(b"another key of enough bytes")
    assert "key" in shell("dial", out, "--tolerance", 0.3, "--key-file", other, code=2).stderr


# ---- what a model is ---------------------------------------------------------------------------


def test_info_describes_the_model(crossed: Path, answer: Any, shell: Any) -> None:
    result = answer("info", crossed)
    found = fairdial.load(crossed)
    assert result["hash"] == found.model_hash_
    assert (result["method"], result["estimator"]) == ("boosting", "FairBayes")
    assert result["training_rows"] + found.frontier_.counts.sum() == 1600
    assert result["trained"] == found.training_["ended"]
    assert result["criterion"] == "equal_opportunity"
    assert (result["label"], result["negative"], result["positive"]) == (
        "decision",
        "deny",
        "approve",
    )
    assert result["sensitive"] == ["region", "sex"]
    assert result["features"] == found.feature_names_in_.tolist()
    assert [line["group"] for line in result["groups"]] == list(found.frontier_.groups)
    assert [line["rows"] for line in result["groups"]] == found.frontier_.counts.sum(
        axis=0
    ).tolist()
    assert (result["tolerance"], result["signed"]) == (0.2, False)
    text = shell("info", crossed).stdout
    lines = [line.split("  ", 1) for line in text.splitlines() if "  " in line]
    shown = {name.strip(): value.strip() for name, value in lines}
    assert shown["positive class"] == "'approve'"
    assert shown["group column"] == "region, sex"
    assert shown["default tolerance"] == "0.2"
    assert shown["scorer sees the group"] == "no"
    assert shown["method"] == "boosting (FairBayes)"
    assert shown["signature"] == "none"
    assert "true positive rate" in text


SMALL = {"epochs": 1, "members": 1}
SEEING = {
    "classifier": (FairBayes(LogisticRegression(), sensitive_column="region"), False),
    "one for each group": (
        FairBayes(LogisticRegression(), per_group=True, sensitive_column="region"), True
    ),
    "network": (FairBayes(Network(**SMALL), sensitive_column="region"), True),
    "blind network": (
        FairBayes(Network(**SMALL, group_input="none"), sensitive_column="region"), False
    ),
    "one of two": (
        FairBayes([LogisticRegression(), Network(**SMALL)], sensitive_column="region"), True
    ),
    "two that are blind": (
        FairBayes((LogisticRegression(), LogisticRegression()), sensitive_column="region"), False
    ),
    "another method": (GFB(network=Network(**SMALL), sensitive_column="region"), True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::fairdial.errors.TrainingWarning")
@pytest.mark.parametrize("name", SEEING)
def test_info_says_whether_the_scorer_sees_the_group(
    name: str, old: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    model, sees = SEEING[name]
    X = old[["region", "children", "half"]]
    clone(model).set_params(random_state=0).fit(X, old["decision"]).save(tmp_path / "m")
    assert answer("info", tmp_path / "m")["scorer_sees_group"] is sees


def test_groups_apart_from_the_rows_may_be_among_the_features(
    old: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(old[["children"]], old["decision"], sensitive_features=old["region"])
    model.save(tmp_path / "m")
    assert answer("info", tmp_path / "m")["scorer_sees_group"] is None


@pytest.mark.parametrize("keep", [(), ("--set",)])
def test_only_tolerances_that_were_given_draw_warnings(
    keep: tuple[str, ...], narrow: Path, tmp_path: Path, shell: Any
) -> None:
    shutil.copytree(narrow, tmp_path / "m")
    shell("dial", tmp_path / "m", "--tolerance", 0, "--set")
    for given, warned in (
        (("--tolerance", 0.2, *keep), False),
        (("--tolerance", 0), True),
        (("--tolerance", 0.2, "--from", 0), True),
    ):
        assert ("Warning: " in shell("dial", tmp_path / "m", *given).stderr) == warned


def test_a_model_that_is_not_calibrated(
    model: Path, place: Path, shell: Any, answer: Any, refused: Any
) -> None:
    found = fairdial.load(model)
    del found.frontier_
    found.save(place / "bare")
    assert answer("info", place / "bare")["frontier"] is None
    assert "fairdial calibrate" in shell("info", place / "bare").stdout
    for command in COMMANDS:
        refused(*in_folder(place, command, place / "bare"), option="MODEL", names=("calibrate",))
    answer("calibrate", place / "bare", place / "new.csv", "--in-place")
    assert fairdial.load(place / "bare").frontier_.counts.sum() == 700


def test_an_altered_or_missing_model_is_refused(
    model: Path, place: Path, shell: Any, refused: Any
) -> None:
    copy = place / "altered"
    shutil.copytree(model, copy)
    card = copy / "MODEL_CARD.md"
    for body in (card.read_bytes().replace(b"deny", b"fine"), card.read_bytes() + b" "):
        card.write_bytes(body)
        assert "`MODEL_CARD.md`" in shell("info", copy, code=2).stderr
    refused("dial", place / "nowhere", option="MODEL", names=("nowhere",))
    refused("dial", place / "modell", option="MODEL", names=("Did you mean 'model'?",))


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
def test_a_manifest_without_a_frontier_is_refused(
    change: Any, model: Path, tmp_path: Path, shell: Any
) -> None:
    forge(model, tmp_path / "forged", change)
    for command in ("info", "dial"):
        assert "`manifest.json`" in shell(command, tmp_path / "forged", code=2).stderr


@pytest.mark.parametrize("name", ["classes", "features", "libraries", "label", "method"])
def test_a_manifest_that_leaves_something_out_is_refused(
    name: str, model: Path, tmp_path: Path, shell: Any
) -> None:
    forge(model, tmp_path / "forged", lambda m: m.pop(name))
    assert "`manifest.json`" in shell("info", tmp_path / "forged", code=2).stderr


def forge(model: Path, folder: Path, change: Any) -> None:
    """A copy with another manifest, whose hash is right."""
    shutil.copytree(model, folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    body = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(body)
    digest = f"{hashlib.sha256(body).hexdigest()}  manifest.json\n"
    (folder / "manifest.sha256").write_text(digest)
