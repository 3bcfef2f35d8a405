"""Compare converted trees with the libraries' own decisions, and measure what they cost to serve.

    python benchmarks/forests.py [--quick] [--mutations 100000] [--seconds 2] [--rounds 3]

Test rows of Adult have missing cells and unseen categories where the library takes them. Times are
processor times.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from common import Goal, at_least, at_most, machine, show_goals, table
from safetensors.numpy import save as write_arrays
from serve import BATCH, SERVER, bodies, measure, request, serving
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import fairdial
from fairdial import FairBayes, ModelFileError, TableEncoder
from fairdial.datasets import load_adult
from fairdial.estimators.learners import SMALL_TREES, booster, boosting, text_columns
from fairdial.io.onnx import export_onnx
from fairdial.io.plain import ARRAYS, read_plain

PACKAGES = ("fairdial", "scikit-learn", "lightgbm", "xgboost-cpu", "catboost", "onnxruntime")
TOLERANCES = np.linspace(0.0, 0.19, 20)
ONE, MANY, PREDICT, FASTER = 3.5, 35.0, 0.7, 20  # goals: pings, pings, seconds, times
MISSING = 0.05  # share of the cells, and of unseen categories


def estimators(texts: Sequence[Any], *, quick: bool) -> dict[str, Any]:
    """Return an estimator of each kind for a table with text columns."""
    size = 10 if quick else 100
    made = {
        "HistGradientBoosting": boosting(texts, 0),
        "GradientBoosting": make_pipeline(
            TableEncoder(n_bins=0), GradientBoostingClassifier(n_estimators=size, random_state=0)
        ),
        "RandomForest": make_pipeline(
            TableEncoder(n_bins=0), RandomForestClassifier(size, random_state=0)
        ),
        "ExtraTrees": make_pipeline(
            TableEncoder(n_bins=0), ExtraTreesClassifier(size, random_state=0)
        ),
        "LightGBM": booster("lightgbm", 0),
        "XGBoost": booster("xgboost", 0),
        "CatBoost": booster("catboost", 0),
    }
    if quick:
        made["HistGradientBoosting"] = HistGradientBoostingClassifier(max_iter=size)
        for name, option in (("LightGBM", "n_estimators"), ("CatBoost", "iterations")):
            made[name][-1].set_params(**{option: size})
        return {name: made[name] for name in ("HistGradientBoosting", "LightGBM")}
    return made


def spoil(X: pd.DataFrame) -> pd.DataFrame:
    """Return rows with missing cells and categories that training rows don't have."""
    rng, texts = np.random.default_rng(0), text_columns(X)
    found = X.astype({name: object if name in texts else float for name in X})
    for name in found:
        if name in texts:
            found.loc[rng.random(len(X)) < MISSING, name] = "never seen"
        found.loc[rng.random(len(X)) < MISSING, name] = None if name in texts else np.nan
    return found


def feed(X: pd.DataFrame, groups: Any) -> dict[str, Any]:
    """Return the inputs of an ONNX graph, apart from the thresholds."""
    texts = text_columns(X)
    return {
        **{
            str(name): X[name].fillna("").to_numpy(object)[:, None]
            if name in texts
            else X[name].to_numpy(np.float64)[:, None]
            for name in X
        },
        "group": np.asarray(groups, object),
    }


def compare(folder: Path, *, quick: bool) -> tuple[list[list[str]], int, int]:
    """Return a line for each kind of estimator, and how many decisions differ in all."""
    adult = load_adult()
    lines, all_differ, all_graph = [], 0, 0
    if quick:
        numbers = adult.X.select_dtypes("number")
        train, test = slice(0, 3000), slice(3000, 4000)
    for name, estimator in estimators(text_columns(adult.X), quick=quick).items():
        if quick:
            rows = numbers if name == "HistGradientBoosting" else adult.X
            X, y, groups = rows[train], adult.y[train], adult.groups[train]
            new, others = rows[test], adult.groups[test]
        else:
            first, last = adult.split(test_size=0.4, random_state=0)
            X, y, groups, new, others = first.X, first.y, first.groups, last.X, last.groups
        new = spoil(new)
        model = FairBayes(estimator, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, sensitive_features=groups)
            model.save(folder / name)
            plain = fairdial.load(folder / name)
            export_onnx(plain, folder / f"{name}.onnx")
            session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
            given = feed(new, others)
            own = model.logits(new, sensitive_features=others)  # by the library
            start = time.process_time()
            scores = plain.logits(new, sensitive_features=others)
            seconds = time.process_time() - start
            codes = np.searchsorted(model.frontier_.groups, others)
            differ = graph = 0
            for point in model.frontier_.at(TOLERANCES):
                limits = point.thresholds
                decisions = own > limits[codes]
                differ += int(np.sum(decisions != (scores > limits[codes])))
                found = session.run(["decision"], {**given, "thresholds": limits})[0]
                graph += int(np.sum(decisions != found))
        total = len(new) * len(TOLERANCES)
        all_differ, all_graph = all_differ + differ, all_graph + graph
        lines.append(
            [
                name,
                f"{total:,}",
                f"{differ:,}",
                f"{graph:,}",
                f"{np.mean(own == scores):.2%}",
                f"{1e6 * seconds / len(new):.1f}",
            ]
        )
    return lines, all_differ, all_graph


def not_converted(texts: Sequence[Any]) -> Any:
    """Return the default model with an encoder that isn't converted: scikit-learn scores tables."""
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
    codes = make_column_transformer(
        (OrdinalEncoder(dtype=np.float32, **unknown), list(texts)), remainder="passthrough"
    )
    trees = HistGradientBoostingClassifier(
        categorical_features=list(range(len(texts))), random_state=0, **SMALL_TREES
    )
    return make_pipeline(codes, trees)


def serve_default(folder: Path, seconds: float, rounds: int, *, quick: bool) -> list[Goal]:
    """Print the server's processor time for the default model; return goals against a ping."""
    train, _ = load_adult().split(test_size=0.2, random_state=0)
    if quick:
        train = train.split(test_size=0.1, random_state=0)[1]
    model = FairBayes(boosting(text_columns(train.X), 0), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y, sensitive_features=train.groups)
    model.save(folder / "default")
    one, batch = bodies()
    wires = {
        "ping": request("GET", "/healthz"),
        "one row": request("POST", "/v1/predict", one),
        f"{BATCH} rows": request("POST", "/v1/predict", batch),
    }
    with serving(folder / "default") as server:
        results = measure(server, wires, seconds, rounds)
    model = FairBayes(not_converted(text_columns(train.X)), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y, sensitive_features=train.groups)
    assert model.plain_ is None
    model.save(folder / "tables")
    del wires[f"{BATCH} rows"]
    with serving(folder / "tables") as server:
        slow = measure(server, wires, seconds, rounds)
    ping = results.cost("ping")
    times = (slow.cost("one row") / slow.cost("ping")) / (results.cost("one row") / ping)
    lines = [[kind, f"{results.cost(kind):,.0f}"] for kind in ("ping", "one row", f"{BATCH} rows")]
    lines.append(["one row, through scikit-learn", f"{slow.cost('one row'):,.0f}"])
    print(table(["request", "CPU us"], lines), flush=True)
    return [
        at_most("one row against a ping", results.cost("one row") / ping, ONE),
        at_most(f"{BATCH} rows against a ping", results.cost(f"{BATCH} rows") / ping, MANY),
        at_least("one row through scikit-learn against one row", times, FASTER),
    ]


def predict_ten(folder: Path, repeats: int) -> tuple[float, float]:
    """Return the processor seconds of ``fairdial predict`` on ten rows, and of importing pandas."""
    adult = load_adult()
    rows = adult.X.iloc[:10].assign(sex=np.asarray(adult.groups)[:10])
    rows.to_csv(folder / "ten.csv", index=False)
    command = [sys.executable, "-c", SERVER, "predict", str(folder / "default"),
               str(folder / "ten.csv"), "--sensitive", "sex", "--overwrite", "--out",
               str(folder / "out.csv"), "-q"]  # fmt: skip
    commands = [command, [sys.executable, "-c", "import pandas"]]
    times = np.array([[_seconds(one) for one in commands] for _ in range(repeats)])
    ours, pandas = times.min(axis=0).tolist()
    return ours, pandas


def _seconds(command: Sequence[str]) -> float:
    """Return the processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def mutate(folder: Path, count: int) -> tuple[int, int, float]:
    """Return how many mutated forest files were refused and were read, and the longest seconds."""
    model = folder / "small"
    adult, rng = load_adult(), np.random.default_rng(0)
    X = adult.X.iloc[:2000]
    small = FairBayes(
        boosting(text_columns(X), 0, trees={"max_iter": 5, "max_leaf_nodes": 6}), random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small.fit(X, adult.y[:2000], sensitive_features=adult.groups[:2000])
    small.save(model)
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    whole = files[ARRAYS]
    plain = read_plain(files)["0"]
    arrays = plain.to_data()[1]
    features = plain.inputs.transform(X[:20])
    refused = read = 0
    longest = 0.0
    for i in range(count):
        if i % 2:  # bytes of the file
            altered = bytearray(whole)
            for place in rng.integers(0, len(whole), int(rng.integers(1, 4))).tolist():
                altered[place] = int(rng.integers(256))
            body = bytes(altered)
        else:  # values of the arrays
            changed = {f"0.{name}": array.copy() for name, array in arrays.items()}
            target = changed[list(changed)[int(rng.integers(len(changed)))]].reshape(-1)
            if len(target):
                value = int(rng.choice([0, 1, 2, 3, 5, 100, 2**31 - 1]))
                target[int(rng.integers(len(target)))] = value
            body = write_arrays(changed)
        start = time.process_time()
        try:
            forest = read_plain({**files, ARRAYS: body})["0"]
            forest._score.logits(features)
            read += 1
        except ModelFileError:
            refused += 1
        longest = max(longest, time.process_time() - start)
    return refused, read, longest


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="per round and kind of request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few rows, trees and mutations")
    given = parser.parse_args(arguments)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
        given.mutations, given.seconds, given.rounds = 200, 0.2, 1
    print(machine(PACKAGES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("\nDecisions at 20 tolerances that differ from the library's own:\n")
        head = ["estimator", "decisions", "differ", "differ in ONNX", "same bits", "us per row"]
        lines, differ, graph = compare(folder, quick=given.quick)
        print(table(head, lines), flush=True)
        refused, read, longest = mutate(folder, given.mutations)
        print(
            f"\n{given.mutations:,} mutated forest files: {refused:,} refused, {read:,} read and "
            f"evaluated, no crash; the longest took {longest:.3f} s."
        )
        print("\nThe default model of fairdial train, served:\n")
        goals = serve_default(folder, given.seconds, given.rounds, quick=given.quick)
        seconds, pandas = predict_ten(folder, 1 if given.quick else 5)
        print(f"\nImporting pandas alone: {pandas:.2f} s.")
        show_goals(
            [
                at_most("decisions of converted models that differ", differ, 0, ""),
                at_most("decisions of ONNX graphs that differ", graph, 0, ""),
                *goals,
                at_most("`fairdial predict` on ten rows", seconds, PREDICT, " s"),
            ]
        )


if __name__ == "__main__":
    main()
