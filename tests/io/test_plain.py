"""Plain models: saved without skops, the same decisions, and forged files are refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes, InvalidInputError, ModelFileError
from fairdial.estimators.learners import blend, booster, boosting
from fairdial.io.manifest import digest_of, hash_of
from fairdial.io.plain import ARRAYS, PLAIN, read_plain
from fairdial.serve.deciding import Decider

RNG = np.random.default_rng(0)
N = 700
X = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N).astype(float),
        "job": RNG.choice(["cook", "nurse", "pilot"], N),
        "pay": RNG.normal(size=N),
    }
)
Y = np.where(X["pay"] + (X["job"] == "cook") + RNG.normal(size=N) > 0.5, "yes", "no")
GROUPS = RNG.choice(["f", "m"], N)
NEW = X.assign(job=X["job"].where(X.index % 5 > 0, "baker"), age=X["age"].where(X.index % 7 > 0))
NUMBERS = ["age", "pay"]
MODELS: dict[str, Any] = {
    "boosting": boosting(["job"], 0),
    "blend": blend(["job"], 0),
    "lightgbm": booster("lightgbm", 0),
    "xgboost": booster("xgboost", 0),
    "catboost": booster("catboost", 0),
}
for _name, _size in (("lightgbm", "n_estimators"), ("xgboost", "n_estimators"),
                     ("catboost", "iterations")):  # fmt: skip
    MODELS[_name][-1].set_params(**{_size: 20})


def fit(estimator: Any, rows: pd.DataFrame = X, **more: Any) -> FairBayes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairBayes(estimator, random_state=0, tolerance=0.1, min_count=1, **more)
        return model.fit(rows, Y, sensitive_features=GROUPS)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_saved_as_plain_files_and_decide_the_same(name: str, tmp_path: Path) -> None:
    model = fit(MODELS[name])
    assert model.plain_ is not None
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "objects.skops").exists()
    again = fairdial.load(tmp_path / "model")
    expected = model.logits(NEW, sensitive_features=GROUPS)
    assert np.array_equal(again.logits(NEW, sensitive_features=GROUPS), expected)
    again.save(tmp_path / "again")
    one, other = (
        [(tmp_path / folder / name).read_bytes() for name in (PLAIN, ARRAYS)]
        for folder in ("model", "again")
    )
    assert one == other
    records = NEW.astype(object).where(NEW.notna(), None).to_dict("records")
    decider = Decider(again)
    rows = decider.rows(records)
    assert isinstance(rows, list)  # no table is built
    codes = decider.codes(GROUPS.tolist())
    assert np.allclose(decider.scores(rows, codes), expected, rtol=1e-12)


def test_boosters_take_text_columns_and_any_labels_as_they_are() -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    catboost = pytest.importorskip("catboost")
    quiet = {"verbose": 0, "allow_writing_files": False}
    for estimator in (
        lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1),
        xgboost.XGBClassifier(n_estimators=5, n_jobs=1),
        catboost.CatBoostClassifier(iterations=5, thread_count=1, **quiet),
    ):
        model = fit(estimator)
        assert model.plain_ is not None
        assert set(model.predict(NEW, sensitive_features=GROUPS)) <= {"no", "yes"}
        texts = model.logits(X.assign(job="cook"), sensitive_features=GROUPS)
        assert (texts > model.logits(X.assign(job="pilot"), sensitive_features=GROUPS)).mean() > 0.6


def test_a_booster_that_is_prefit_is_converted_too(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rows = X.astype({"job": "category"})
    trained = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(rows, Y)
    model = FairBayes(trained, prefit=True, min_count=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.calibrate(rows, Y, sensitive_features=GROUPS)
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    new = NEW.astype({"job": "category"})
    found = [m.logits(new, sensitive_features=GROUPS) for m in (model, again)]
    assert np.array_equal(*found)


def native(library: str, objective: str, rows: pd.DataFrame) -> Any:
    """A booster of the library's own API."""
    module = pytest.importorskip(library)
    labels = (Y == "yes").astype(int)
    if library == "lightgbm":
        settings = {"objective": objective, "verbose": -1, "num_threads": 1}
        return module.train(settings, module.Dataset(rows, labels), 10)
    if library == "xgboost":
        settings = {"objective": objective, "nthread": 1}
        return module.train(settings, module.DMatrix(rows, labels), 10)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return module.CatBoost({"loss_function": objective, "iterations": 10, **quiet}).fit(
        rows, labels
    )


@pytest.mark.parametrize(
    ("library", "objective"),
    [("lightgbm", "binary"), ("xgboost", "binary:logistic"), ("catboost", "Logloss")],
)
@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.filterwarnings("ignore::fairdial.FairdialWarning")
def test_native_boosters_are_calibrated_saved_and_calibrated_again(
    library: str, objective: str, positive: int, tmp_path: Path
) -> None:
    rows, labels = X[NUMBERS], (Y == "yes").astype(int)
    booster = native(library, objective, rows)
    model = FairBayes(booster, prefit=True, pos_label=positive, min_count=1)
    model.calibrate(rows, labels, sensitive_features=GROUPS)
    right = model.predict(rows, sensitive_features=GROUPS, tolerance=1) == labels
    assert right.mean() > 0.65  # a booster's predict gives probabilities, not labels
    model.save(tmp_path / "model")
    again = fairdial.load(tmp_path / "model")
    expected = model.logits(rows, sensitive_features=GROUPS)
    assert np.array_equal(again.logits(rows, sensitive_features=GROUPS), expected)
    again.calibrate(rows, labels, sensitive_features=GROUPS)
    again.save(tmp_path / "again")
    assert fairdial.load(tmp_path / "again").thresholds(0.1) == model.thresholds(0.1)
    with pytest.raises(InvalidInputError) as caught:
        FairBayes(booster).fit(rows, labels, sensitive_features=GROUPS)
    assert caught.value.argument == "estimator"


def test_scores_that_are_no_probabilities_are_refused() -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    rows, labels = X[NUMBERS], (Y == "yes").astype(int)
    quiet = {"n_estimators": 3, "verbose": -1, "n_jobs": 1}
    for trained in (
        lightgbm.LGBMRanker(**quiet).fit(rows, labels, group=[N]),
        lightgbm.LGBMRegressor(**quiet).fit(rows, labels),
        xgboost.XGBClassifier(objective="binary:logitraw", n_estimators=3, n_jobs=1).fit(
            rows, labels
        ),
        xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(
            rows, np.stack([labels, rows["age"] > 50], axis=1)
        ),
        RandomForestClassifier(3).fit(rows, np.stack([labels, labels], axis=1)),
    ):
        with pytest.raises(InvalidInputError) as caught:
            FairBayes(trained, prefit=True).calibrate(rows, labels, sensitive_features=GROUPS)
        assert caught.value.argument == "estimator"


def test_lightgbm_gets_the_columns_of_training_in_their_order() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rows = X[NUMBERS].rename(columns={"age": "own age"})
    trained = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(rows, Y)
    for wrong in (rows[["pay", "own age"]], X[NUMBERS]):
        with pytest.raises(InvalidInputError) as caught:
            FairBayes(trained, prefit=True).calibrate(wrong, Y, sensitive_features=GROUPS)
        assert caught.value.argument == "X"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairBayes(trained, prefit=True, min_count=1)
        assert model.calibrate(rows, Y, sensitive_features=GROUPS).plain_ is not None


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_categories_of_any_kind_reach_the_boosters(name: str) -> None:
    odd = X.assign(job=X["job"].replace({"cook": "Köchin", "nurse": "Käser"}))
    odd["flag"] = np.where(X["pay"] > 0, True, None)
    odd["mixed"] = [["1", 1, 2.5, None][i % 4] for i in range(N)]
    model = fit(MODELS[name], odd)
    assert model.plain_ is not None
    texts = model.logits(odd.assign(job="Köchin"), sensitive_features=GROUPS)
    assert (texts > model.logits(odd.assign(job="Käser"), sensitive_features=GROUPS)).mean() > 0.6


def test_what_is_not_converted_says_why_and_goes_through_skops(tmp_path: Path) -> None:
    model = fit(HistGradientBoostingClassifier(max_iter=3), X[NUMBERS], predict_method="predict")
    assert model.plain_ is None
    assert "predict" in model.plain_error_
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "objects.skops").exists()
    assert fairdial.load(tmp_path / "model").thresholds(0.1) == model.thresholds(0.1)


def test_a_conversion_that_decides_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairdial.forests import plain

    right = plain.Line.logits
    monkeypatch.setattr(plain.Line, "logits", lambda self, rows: -right(self, rows))
    model = fit(LogisticRegression(), X[NUMBERS])
    assert model.plain_ is None
    assert "calibration rows" in model.plain_error_
    monkeypatch.setattr(plain.Line, "logits", lambda self, rows: right(self, rows) * (1 + 1e-15))
    assert fit(LogisticRegression(), X[NUMBERS]).plain_ is not None  # no decision differs


# ---- forged files ------------------------------------------------------------------------------


def forge(folder: Path, **files: bytes) -> None:
    """Replace files, with the right hashes."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, body in files.items():
        (folder / name).write_bytes(body)
        manifest["files"][name] = {"sha256": hash_of(body), "size": len(body)}
    body = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(body)
    (folder / "manifest.sha256").write_bytes(digest_of(body))


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("forest") / "model"
    fit(RandomForestClassifier(3, random_state=0), X[NUMBERS]).save(folder)
    return {name: (folder / name).read_bytes() for name in (PLAIN, ARRAYS)}


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.update(more=data["0"]),
        lambda data: data["0"].pop("forest"),
        lambda data: data["0"]["forest"].update(n_features=1),
        lambda data: data["0"]["forest"].update(divisor=0),
        lambda data: data["0"]["inputs"].update(columns=["age"]),
        lambda data: data["0"]["inputs"].update(scale=[0.0, 1.0]),
        lambda data: data["0"]["inputs"]["blocks"].pop(),
        lambda data: data["0"]["inputs"]["blocks"][0].update(kind="evil"),
    ],
)
def test_forged_data_are_refused(edit: Any, forest: dict[str, bytes]) -> None:
    data = json.loads(forest[PLAIN])
    edit(data)
    with pytest.raises(ModelFileError, match="plain"):
        read_plain({**forest, PLAIN: json.dumps(data).encode()})


@pytest.mark.parametrize("name", ["left", "right", "feature", "set_index", "offsets"])
def test_forged_arrays_are_refused(name: str, forest: dict[str, bytes]) -> None:
    arrays = read_arrays(forest[ARRAYS])
    arrays[f"0.{name}"] = arrays[f"0.{name}"] + 10**6
    with pytest.raises(ModelFileError, match="plain"):
        read_plain({**forest, ARRAYS: write_arrays(arrays)})


def test_mutated_files_are_read_or_refused(forest: dict[str, bytes]) -> None:
    rng, body = np.random.default_rng(0), forest[ARRAYS]
    rows = X[NUMBERS].head(20)
    for _ in range(300):
        altered = bytearray(body)
        for place in rng.integers(0, len(body), 3).tolist():
            altered[place] = int(rng.integers(256))
        try:
            found = read_plain({**forest, ARRAYS: bytes(altered)})
        except ModelFileError:
            continue
        found["0"].logits(rows)


def test_estimators_outside_the_list_are_not_built(tmp_path: Path) -> None:
    fit(LogisticRegression(), X[NUMBERS]).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    manifest["parameters"]["estimator"]["$estimator"][0] = "os.system"
    body = json.dumps(manifest).encode()
    (tmp_path / "model" / "manifest.json").write_bytes(body)
    forge(tmp_path / "model")
    with pytest.raises(ModelFileError, match="estimator"):
        fairdial.load(tmp_path / "model")
