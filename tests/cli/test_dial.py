"""``fairdial dial`` and ``info``: the frontier's own figures, and who is moved."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import GFB, CannotCertifyError, FairBayes, Network
from fairdial.cli.figures import plain
from fairdial.cli.model_rows import read_rows


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
    rows = read_rows(found, place / "new.csv")
    for start, wish in ((0.3, 0.02), (0.02, 0.3), (0.1, 0.05)):
        told = answer("dial", out, "--tolerance", wish, "--from", start)
        moved = found.flips(rows.X, start, wish)
        for line in told["moved"]:
            flips = moved[(rows.groups == line["group"]).to_numpy()]
            assert line["gained"] == (flips == 1).sum()
            assert line["lost"] == (flips == -1).sum()
            assert line["balance"] == flips.sum()
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


def in_a_table(refusal: CannotCertifyError) -> str:
    """A refusal as the command line says it: with the table of which a quarter is held out."""
    assert refusal.rows_needed is not None
    whole = 4 * refusal.rows_needed
    step = 10 ** (len(str(whole)) - 3)
    table = f" (when training: a table of about {-(-whole // step) * step:,} with 25% held out)"
    text = f"{str(refusal)[:-1]}{table}".replace("`tolerance`", "--tolerance")
    assert "calibration rows like these would do" in text
    return f"Error: {text}.\n"


def test_confidence_is_the_frontiers_or_its_refusal(
    model: Path, place: Path, answer: Any, shell: Any
) -> None:
    frontier = fairdial.load(model).frontier_
    told = answer("dial", model, "--tolerance", 0.25, "--confidence", 0.9)
    point = frontier.at(0.25, confidence=0.9)
    assert (told["gap"], told["certified_gap"]) == (point.gap, point.certified_gap)
    assert told["confidence"] == 0.9
    text = shell("dial", model, "--tolerance", 0.25, "--confidence", 0.9).stdout
    assert "With confidence 0.9 the gap on new rows is at most 0.2500, if the tolerance was" in text
    with pytest.raises(CannotCertifyError) as refusal:
        frontier.at(0.01, confidence=0.95)
    found = shell("dial", model, "--tolerance", 0.01, "--confidence", 0.95, code=1)
    assert found.stderr == in_a_table(refusal.value)
    rows = place / "new.csv"
    for command in (("predict", model, rows, "--out", "-"), ("evaluate", model, rows)):
        given = ("--tolerance", 0.01, "--confidence", 0.95)
        assert shell(*command, *given, code=1).stderr == found.stderr


def test_a_refusal_at_rest_names_no_option_that_was_not_given(
    model: Path, place: Path, shell: Any
) -> None:
    rows, sure = place / "new.csv", ("--confidence", 0.999)
    for name, *more in (("dial",), ("predict", rows, "--out", "-"), ("evaluate", rows)):
        told = shell(name, model, *more, *sure, code=1).stderr
        assert told.startswith("Error: Where the dial rests, tolerance 0.1 can't be certified with")
        told = shell(name, model, *more, *sure, "--tolerance", 0.1, code=1).stderr
        assert told.startswith("Error: --tolerance=0.1 can't be certified with")


BEFOREHAND = (
    ", if the tolerance was decided on before looking at the figures; --simultaneous is for"
)
ANY = ", also if the tolerance was chosen after looking at the figures."


def test_it_is_said_for_which_tolerances_a_promise_holds(
    model: Path, crossed: Path, answer: Any, shell: Any
) -> None:
    for folder, wish in ((model, 0.3), (crossed, 0.7)):
        frontier, given = fairdial.load(folder).frontier_, ("dial", folder, "--tolerance", wish)
        for flag in ((), ("--simultaneous",)):
            certain = (*given, "--confidence", 0.9, *flag)
            point = frontier.at(wish, confidence=0.9, simultaneous=bool(flag))
            told, any_wish = answer(*certain), bool(flag) or folder == crossed
            assert (told["gap"], told["certified_gap"]) == (point.gap, point.certified_gap)
            assert told["simultaneous"] is any_wish
            text = shell(*certain).stdout
            assert (BEFOREHAND in text, ANY in text) == (not any_wish, any_wish)
        assert answer(*given)["simultaneous"] is None
    one, whole = (
        fairdial.load(model).frontier_.at(0.3, confidence=0.9, simultaneous=flag)
        for flag in (False, True)
    )
    assert whole.gap < one.gap  # so that the two can be told apart


def test_a_refusal_for_any_tolerance_is_the_frontiers(model: Path, shell: Any) -> None:
    with pytest.raises(CannotCertifyError) as refusal:
        fairdial.load(model).frontier_.at(0.15, confidence=0.9, simultaneous=True)
    given = ("dial", model, "--tolerance", 0.15, "--confidence", 0.9)
    found = shell(*given, "--simultaneous", code=1)
    assert found.stderr == in_a_table(refusal.value)
    shell(*given)


@pytest.mark.parametrize(
    "command", [("dial",), ("predict", "new.csv", "--out", "-"), ("evaluate", "new.csv")]
)
def test_simultaneous_comes_with_confidence(
    command: tuple[str, ...], model: Path, place: Path, shell: Any
) -> None:
    given = [place / word if word == "new.csv" else word for word in command[1:]]
    told = shell(command[0], model, *given, "--simultaneous", code=2).stderr
    assert "--simultaneous must come with --confidence." in told


def test_a_tolerance_that_is_out_of_reach_is_told(model: Path, answer: Any, shell: Any) -> None:
    found = shell("dial", model, "--tolerance", 0)
    assert found.stderr.startswith("Warning: no position of the dial has a demographic parity gap")
    assert found.stderr.endswith(" is used\n")
    assert found.stderr.count("\n") == 1
    assert "It is the smallest gap of the dial." in found.stdout
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


def test_set_says_that_a_server_has_a_dial_of_its_own(
    model: Path, tmp_path: Path, shell: Any
) -> None:
    shutil.copytree(model, tmp_path / "m")
    move = ("dial", tmp_path / "m", "--tolerance", 0.04, "--set")
    assert "audit log" not in shell(*move).stderr
    (tmp_path / "m.audit.sqlite").touch()
    assert "stands where its audit log says (m.audit.sqlite)" in shell(*move).stderr
    assert shell(*move, "-q").stderr == ""


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
        assert re.search(f"^signature +{words}", shell("info", out, *given).stdout, re.MULTILINE)
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
    lines = [line.split("  ", 1) for line in text.splitlines() if "  " in line]
    told = {name.strip(): value.strip() for name, value in lines}
    assert told["selected means"] == "decision = 'approve' (the other: 'deny')"
    assert told["scorer sees the group"] == "no"
    assert "true positive rate" in text
    assert told["method"] == "boosting (FairBayes)"
    assert told["signature"] == "none"
    assert "calibration rows), south & M (" in text


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
def test_info_tells_whether_the_scorer_sees_the_group_as_the_card_does(
    name: str, old: pd.DataFrame, tmp_path: Path, answer: Any
) -> None:
    model, sees = SEEING[name]
    X = old[["region", "children", "half"]]
    clone(model).set_params(random_state=0).fit(X, old["decision"]).save(tmp_path / "m")
    assert answer("info", tmp_path / "m")["scorer_sees_group"] is sees
    words = "which the scorer sees too." if sees else "which the scorer doesn't see."
    assert words in (tmp_path / "m" / "MODEL_CARD.md").read_text()


def test_of_groups_that_were_given_beside_the_rows_it_isnt_known_who_sees_them(
    old: pd.DataFrame, tmp_path: Path, answer: Any, shell: Any
) -> None:
    model = FairBayes(LogisticRegression(), random_state=0)
    model.fit(old[["children"]], old["decision"], sensitive_features=old["region"])
    model.save(tmp_path / "m")
    assert answer("info", tmp_path / "m")["scorer_sees_group"] is None
    assert "not known: it may be among the features" in shell("info", tmp_path / "m").stdout


@pytest.mark.parametrize("keep", [(), ("--set",)])
def test_where_the_dial_rests_is_compared_with_and_not_warned_about(
    keep: tuple[str, ...], model: Path, tmp_path: Path, shell: Any
) -> None:
    shutil.copytree(model, tmp_path / "m")
    shell("dial", tmp_path / "m", "--tolerance", 0, "--set")
    for given, warned in ((("--tolerance", 0.2, *keep), False), (("--tolerance", 0), True)):
        found = shell("dial", tmp_path / "m", *given)
        assert ("no position of the dial has a " in found.stderr) == warned
        assert "rows moved from " in found.stdout
    assert "no position" in shell("dial", tmp_path / "m", "--tolerance", 0.2, "--from", 0).stderr


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
    told = shell("dial", place / "nowhere", code=2).stderr
    assert "MODEL must be a model's folder" in told
    assert told.endswith("there is no such folder.\n")
    told = shell("dial", place / "modell", code=2).stderr
    assert told.endswith("there is no such folder. Did you mean 'model'?\n")


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
