"""Converted classifiers score as their libraries do, and what can't be converted is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fairdial import InvalidInputError, TableEncoder, proba_to_logits
from fairdial.estimators.learners import boosting
from fairdial.estimators.scorers import estimator_logits
from fairdial.forests.convert import convert
from fairdial.forests.forest import CannotConvertError
from fairdial.forests.native import as_classifier
from fairdial.forests.plain import PlainModel
from fairdial.forests.steps import Columns

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
catboost = pytest.importorskip("catboost")

N = 1500
RNG = np.random.default_rng(0)
JOBS = ["cook", "nurse", "pilot", "clerk", "smith"]
TRAIN = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N).astype(float),
        "job": RNG.choice(JOBS, N),
        "pay": RNG.normal(size=N).round(1),
        "city": RNG.choice(["A", "B", "C"], N),
    }
)
Y = (
    TRAIN["pay"] + 0.05 * TRAIN["age"] * TRAIN["job"].isin(JOBS[::2]) + RNG.normal(size=N) > 1
).astype(int)
TRAIN.loc[::9, "pay"] = np.nan
TEST = TRAIN.sample(N, random_state=1).reset_index(drop=True)
TEST["pay"] = RNG.normal(size=N)  # values that training rows don't have
TEST.loc[::5, "pay"] = np.nan
TEST.loc[::7, "age"] = np.nan
UNSEEN = TEST.assign(job=TEST["job"].where(TEST.index % 4 > 0, "baker"))
UNSEEN.loc[::6, "city"] = None
TEXTS, NUMBERS = ["job", "city"], ["age", "pay"]
QUIET = {"verbose": 0, "allow_writing_files": False, "iterations": 2, "thread_count": 1}


def as_categories(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(dict.fromkeys(TEXTS, "category"))


def columns(table: Any) -> Columns:
    if isinstance(table, np.ndarray):
        return Columns(tuple(range(table.shape[1])), False, {})
    return Columns(tuple(table.columns), True, table.dtypes.to_dict())


def check(
    model: Any, train: Any, test: Any, *, positive: int = 1, method: str = "predict_proba"
) -> PlainModel:
    """Fit, convert, and compare scores: the same bits."""
    model.fit(train, Y)
    plain = convert(model, columns(train), positive=positive, method=method)
    expected = estimator_logits(model, test, positive=positive, method=method)
    assert np.array_equal(plain.logits(test), expected)
    assert len(np.unique(expected)) > 5
    return plain


def one_hot(*steps: Any) -> Any:
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), *steps), NUMBERS),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), TEXTS),
    )


def ordinal() -> Any:
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    )
    return make_column_transformer((encoder, TEXTS), remainder="passthrough")


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_text_has_the_code_of_its_encoder(missing: object) -> None:
    train, test = (table.astype(dict.fromkeys(TEXTS, object)) for table in (TRAIN, TEST))
    for table in (train, test):
        table.loc[::6, "city"] = missing
    check(make_pipeline(ordinal(), RandomForestClassifier(5, random_state=0)), train, test)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize(
    "model",
    [
        boosting(TEXTS, 0),
        make_pipeline(ordinal(), RandomForestClassifier(5, random_state=0)),
        make_pipeline(ordinal(), ExtraTreesClassifier(5, max_leaf_nodes=30, random_state=0)),
        make_pipeline(ordinal(), DecisionTreeClassifier(max_depth=4)),
        make_pipeline(one_hot(), GradientBoostingClassifier(n_estimators=9)),
        make_pipeline(one_hot(), GradientBoostingClassifier(n_estimators=9, init="zero")),
        make_pipeline(TableEncoder(), HistGradientBoostingClassifier(max_iter=9)),
        make_pipeline(one_hot(StandardScaler()), LogisticRegression()),
        make_pipeline(TableEncoder(dtype="float64"), LogisticRegression(max_iter=1000)),
    ],
    ids=lambda model: type(model[-1]).__name__ if hasattr(model, "steps") else "",
)
def test_scikit_learn_models_keep_their_bits(model: Any, positive: int) -> None:
    plain = check(model, TRAIN, UNSEEN, positive=positive)
    data, arrays = plain.to_data()
    assert np.array_equal(PlainModel.from_data(data, arrays).logits(UNSEEN), plain.logits(UNSEEN))
    records = UNSEEN.astype(object).where(UNSEEN.notna(), None).to_dict("records")
    for some in (records[:3], records[:40]):
        found = plain.record_logits(some)
        assert np.allclose(found, plain.logits(UNSEEN)[: len(some)], rtol=1e-12)


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_histogram_boosting_with_its_own_encoder(method: str) -> None:
    model = HistGradientBoostingClassifier(max_iter=9, categorical_features="from_dtype")
    check(model, as_categories(TRAIN), as_categories(UNSEEN), method=method)


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_beyond_single_precision_are_refused_as_by_scikit_learn() -> None:
    train, test = TRAIN[NUMBERS].to_numpy(), TEST[NUMBERS].to_numpy().copy()
    model = RandomForestClassifier(3, random_state=0)
    plain = check(model, train, test)
    test[5, 0] = 1e39
    for scorer in (model.predict_proba, plain.logits):
        with pytest.raises(ValueError, match="float32"):
            scorer(test)
    with pytest.raises(InvalidInputError):
        plain.record_logits([{"0": 1e39, "1": 0.0}])


def test_arrays_without_names() -> None:
    train, test = TRAIN[NUMBERS].to_numpy(), TEST[NUMBERS].to_numpy()
    check(HistGradientBoostingClassifier(max_iter=9), train, test)
    check(RandomForestClassifier(5, random_state=0), train, test)
    model = SGDClassifier(random_state=0).fit(np.nan_to_num(train), Y)
    plain = convert(model, columns(train), positive=1, method="decision_function")
    assert np.array_equal(
        plain.logits(np.nan_to_num(test)), model.decision_function(np.nan_to_num(test))
    )
    with pytest.raises(ValueError, match="finite"):  # as the model itself
        plain.logits(test)


@pytest.mark.parametrize("positive", [0, 1])
def test_lightgbm(positive: int) -> None:
    model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1)
    check(model, as_categories(TRAIN), as_categories(UNSEEN), positive=positive)
    check(model, TRAIN[NUMBERS], TEST[NUMBERS], positive=positive)
    check(model, TRAIN[NUMBERS].fillna(0), TEST[NUMBERS], positive=positive)  # NaN counts as 0


@pytest.mark.parametrize("positive", [0, 1])
def test_xgboost(positive: int) -> None:
    model = xgboost.XGBClassifier(
        n_jobs=1, n_estimators=20, enable_categorical=True, max_cat_to_onehot=2
    )
    known = TEST.assign(job=pd.Categorical(TEST["job"], sorted(JOBS)), city=TEST["city"])
    known = known.astype({"city": "category"})
    known.loc[::6, "city"] = np.nan
    check(model, as_categories(TRAIN), known, positive=positive)
    check(
        xgboost.XGBClassifier(n_jobs=1, n_estimators=9, base_score=0.3),
        TRAIN[NUMBERS],
        TEST[NUMBERS],
    )
    pruned = xgboost.XGBClassifier(n_jobs=1, n_estimators=9, tree_method="exact", gamma=3.0)
    check(pruned, TRAIN[NUMBERS], TEST[NUMBERS])


@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
def test_catboost(nan_mode: str) -> None:
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostClassifier(
        iterations=20, nan_mode=nan_mode, boost_from_average=nan_mode == "Max", **quiet
    )
    check(model, TRAIN[NUMBERS], TEST[NUMBERS].assign(age=TEST["age"].fillna(30)))
    check(make_pipeline(TableEncoder(n_bins=0), model), TRAIN, UNSEEN, positive=0)


def native(library: str, objective: str = "", **more: Any) -> Any:
    """A booster of the library's own API, trained on numbers without names."""
    X = TRAIN[NUMBERS].to_numpy()
    if library == "lightgbm":
        settings = {"objective": objective or "binary", "verbose": -1, "num_threads": 1}
        return lightgbm.train(settings, lightgbm.Dataset(X, Y, **more), num_boost_round=5)
    if library == "xgboost":
        settings = {"objective": objective or "binary:logistic", "nthread": 1}
        return xgboost.train(settings, xgboost.DMatrix(X, Y), num_boost_round=5)
    return catboost.CatBoost({"loss_function": objective or "Logloss", **QUIET}).fit(X, Y)


def own_probabilities(booster: Any, X: Any) -> Any:
    """What the booster's own ``predict`` says."""
    if isinstance(booster, xgboost.Booster):
        return booster.predict(xgboost.DMatrix(X))
    if isinstance(booster, catboost.CatBoost):
        return booster.predict(X, prediction_type="Probability")[:, 1]
    return booster.predict(X)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost"])
@pytest.mark.parametrize("positive", [0, 1])
def test_native_boosters(library: str, positive: int) -> None:
    booster, test = native(library), TEST[NUMBERS].fillna(30).to_numpy()
    model = as_classifier(booster)
    p = model.predict_proba(test)
    assert np.array_equal(p[:, 1], own_probabilities(booster, test))
    plain = convert(model, columns(test), positive=positive, method="predict_proba")
    assert np.array_equal(plain.logits(test), proba_to_logits(p[:, positive]))
    assert plain.source == type(booster).__name__


@pytest.mark.parametrize(
    ("library", "objective", "more"),
    [
        ("lightgbm", "lambdarank", {"group": [N // 10] * 10}),
        ("lightgbm", "regression", {}),
        ("xgboost", "reg:squarederror", {}),
        ("xgboost", "rank:pairwise", {}),
        ("catboost", "RMSE", {}),
    ],
)
def test_native_boosters_without_probabilities_are_refused(
    library: str, objective: str, more: Any
) -> None:
    with pytest.raises(InvalidInputError, match=objective) as caught:
        as_classifier(native(library, objective, **more))
    assert caught.value.argument == "estimator"


def test_a_native_booster_uses_all_its_trees_after_early_stopping() -> None:
    X = TEST[NUMBERS].to_numpy()
    booster = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1, "learning_rate": 0.9},
        xgboost.DMatrix(X[:700], Y[:700]),
        200,
        evals=[(xgboost.DMatrix(X[700:], Y[700:]), "held_out")],
        early_stopping_rounds=3,
        verbose_eval=False,
    )
    assert booster.best_iteration < booster.num_boosted_rounds() - 1
    plain = convert(as_classifier(booster), columns(X), positive=1, method="predict_proba")
    assert np.array_equal(plain.logits(X), proba_to_logits(own_probabilities(booster, X)))


def test_xgboost_keeps_its_categories_whatever_the_rows_say() -> None:
    model = xgboost.XGBClassifier(n_jobs=1, n_estimators=9, enable_categorical=True)
    model.fit(as_categories(TRAIN), Y)
    other = TRAIN.assign(
        job=pd.Categorical(TRAIN["job"], sorted(JOBS, reverse=True)),
        city=pd.Categorical(TRAIN["city"], ["C", "A", "B"]),
    )
    expected = estimator_logits(model, other, positive=1, method="predict_proba")
    plain = convert(model, columns(other), positive=1, method="predict_proba")
    assert np.array_equal(plain.logits(other), expected)
    assert np.array_equal(plain.logits(TRAIN), expected)  # text is enough
    beyond = as_categories(TRAIN.replace({"job": {"cook": "Köchin", "nurse": "Käser"}}))
    model.fit(beyond, Y)  # XGBoost can't tell such text apart
    with pytest.raises(CannotConvertError, match="ASCII"):
        convert(model, columns(beyond), positive=1, method="predict_proba")


def test_early_stopping_uses_the_best_iteration() -> None:
    X, new = TRAIN[NUMBERS], TEST[NUMBERS]
    model = xgboost.XGBClassifier(
        n_jobs=1, n_estimators=200, early_stopping_rounds=3, learning_rate=0.9
    )
    model.fit(X[:700], Y[:700], eval_set=[(X[700:], Y[700:])], verbose=False)
    assert model.best_iteration < model.get_booster().num_boosted_rounds() - 1
    plain = convert(model, columns(X), positive=1, method="predict_proba")
    expected = estimator_logits(model, new, positive=1, method="predict_proba")
    assert np.array_equal(plain.logits(new), expected)
    other = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.9, verbose=-1, n_jobs=1)
    other.fit(X[:700], Y[:700], eval_X=(X[700:],), eval_y=(Y[700:],),
              callbacks=[lightgbm.early_stopping(3, verbose=False)])  # fmt: skip
    plain = convert(other, columns(X), positive=1, method="predict_proba")
    expected = estimator_logits(other, new, positive=1, method="predict_proba")
    assert np.array_equal(plain.logits(new), expected)


# ---- refusals ----------------------------------------------------------------------------------


def _own_objective(y: Any, p: Any) -> tuple[Any, Any]:
    return p - y, np.ones_like(p)


SEVERAL = (TRAIN["pay"].fillna(0) > 0).astype(int) + Y


@pytest.mark.parametrize(
    ("model", "y", "named"),
    [
        (
            lightgbm.LGBMClassifier(objective=_own_objective, n_estimators=3, verbose=-1, n_jobs=1),
            Y,
            "objective",
        ),
        (
            lightgbm.LGBMClassifier(linear_tree=True, n_estimators=3, verbose=-1, n_jobs=1),
            Y,
            "linear",
        ),
        (
            lightgbm.LGBMClassifier(zero_as_missing=True, n_estimators=3, verbose=-1, n_jobs=1),
            Y,
            "zero_as_missing",
        ),
        (lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1), SEVERAL, "classes"),
        (xgboost.XGBClassifier(n_jobs=1, objective="binary:hinge"), Y, "binary:hinge"),
        (xgboost.XGBClassifier(n_jobs=1, n_estimators=3, missing=-1.0), Y, "missing"),
        (xgboost.XGBClassifier(n_jobs=1, booster="dart", n_estimators=3), Y, "dart"),
        (xgboost.XGBClassifier(n_jobs=1, booster="gblinear"), Y, "gblinear"),
        (catboost.CatBoostClassifier(loss_function="MultiClass", **QUIET), SEVERAL, "classes"),
        (catboost.CatBoostClassifier(grow_policy="Lossguide", **QUIET), Y, "grow_policy"),
        (GradientBoostingClassifier(init=LogisticRegression(), n_estimators=2), Y, "init"),
        (RandomForestClassifier(2), SEVERAL, "classes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_converted_is_named(model: Any, y: Any, named: str) -> None:
    X = TRAIN[NUMBERS].fillna(0.5)
    model.fit(X, y)
    with pytest.raises(CannotConvertError, match=named):
        convert(model, columns(X), positive=1, method="predict_proba")


def test_catboost_features_other_than_numbers_are_refused() -> None:
    model = catboost.CatBoostClassifier(cat_features=["job"], **QUIET).fit(TRAIN[["job", "age"]], Y)
    with pytest.raises(CannotConvertError, match="cat_features"):
        convert(model, columns(TRAIN[["job", "age"]]), positive=1, method="predict_proba")
