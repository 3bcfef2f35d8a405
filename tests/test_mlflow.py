"""Models in MLflow: the same decisions after logging, loading and serving, at any tolerance."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, InvalidInputError
from fairdial.mlflow import Predictor, load_model, log_model

mlflow = pytest.importorskip("mlflow")

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own, and of the database it keeps

COLUMNS = ["x", "z"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    team = rng.choice(["red", "blue"], 900)
    x = rng.normal(size=900) + (team == "red")
    return pd.DataFrame({"x": x, "z": rng.normal(size=900), "team": team})


@pytest.fixture(scope="module")
def model(frame):
    rng = np.random.default_rng(1)
    y = np.where(frame["x"] + rng.normal(size=900) > 0.5, "yes", "no")
    model = FairBayes(LogisticRegression(), tolerance=0.2, calibration=0.5, random_state=0)
    return model.fit(frame[COLUMNS], y, sensitive_features=frame["team"])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where this module's models are."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(autouse=True)
def _tracking(store):
    """Each test begins with that place, wherever others tracked."""
    mlflow.set_tracking_uri(f"sqlite:///{store}/mlflow.db")


@pytest.fixture(scope="module")
def logged(model, frame, store):
    mlflow.set_tracking_uri(f"sqlite:///{store}/mlflow.db")
    folder = store
    artifacts = mlflow.create_experiment("tests", f"{folder}/artifacts")
    with mlflow.start_run(experiment_id=artifacts):
        return log_model(model, group="team", input_example=frame[:3])


def decide(model, frame, tolerance=None):
    return model.predict(frame[COLUMNS], sensitive_features=frame["team"], tolerance=tolerance)


def test_a_logged_model_decides_like_the_model_at_every_tolerance(logged, model, frame):
    served = mlflow.pyfunc.load_model(logged.model_uri)
    assert (served.predict(frame) == decide(model, frame)).all()
    found = [served.predict(frame, params={"tolerance": t}) for t in (0.0, 0.05, 1.0)]
    for tolerance, decisions in zip((0.0, 0.05, 1.0), found, strict=True):
        assert (decisions == decide(model, frame, tolerance)).all()
    assert (found[0] != found[2]).any()


def test_the_card_is_an_artifact_of_the_run_and_the_estimator_comes_back(logged, model, frame):
    text = mlflow.artifacts.load_text(f"runs:/{logged.run_id}/MODEL_CARD.md")
    assert "demographic parity" in text
    assert logged.metadata["fairdial_criterion"] == "demographic_parity"
    again = load_model(logged.model_uri)
    assert again.frontier_.to_json() == model.frontier_.to_json()
    assert (decide(again, frame) == decide(model, frame)).all()


def test_a_model_of_another_flavor_is_refused(tmp_path):
    class Other(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input):  # noqa: ARG002
            return model_input

    mlflow.pyfunc.save_model(str(tmp_path / "other"), python_model=Other(), pip_requirements=[])
    with pytest.raises(InvalidInputError) as refused:
        load_model(str(tmp_path / "other"))
    assert refused.value.argument == "uri"


def test_the_document_runs(capsys):
    page = Path(__file__).parent.parent / "docs" / "mlflow.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    names = {}
    exec(compile(code, str(page), "exec"), names)
    want = decide_all(names["model"], names["test"], 0.05)
    assert str(want[:5]) in capsys.readouterr().out
    assert (decide_all(names["again"], names["test"], 0.05) == want).all()


def decide_all(model, sample, tolerance):
    return model.predict(sample.X, sensitive_features=sample.groups, tolerance=tolerance)


def test_what_cant_be_decided_on_is_refused(model, frame):
    with pytest.raises(InvalidInputError) as refused:
        log_model(model)  # which column has the group?
    assert refused.value.argument == "group"
    with pytest.raises(InvalidInputError) as refused:
        log_model(FairBayes(LogisticRegression()))
    assert refused.value.argument == "model"
    one = Predictor(model, "team")
    for given, params, argument in (
        (frame[COLUMNS], None, "model_input"),
        (frame.to_numpy(), None, "model_input"),
        (frame, {"tolerence": 0.1}, "params"),
        (frame, {"tolerance": 1.5}, "tolerance"),
    ):
        with pytest.raises(InvalidInputError) as refused:
            one.predict(given, params)
        assert refused.value.argument == argument


def test_mlflow_serves_it_with_a_tolerance_in_each_request(logged, model, frame, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = mlflow.artifacts.download_artifacts(
        artifact_uri=logged.model_uri, dst_path=str(tmp_path)
    )
    command = ["models", "serve", "-m", path, "--env-manager", "local", "-p", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command, "--workers", "1"],
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            start_new_session=True,
        )
    try:
        for tolerance in (0.0, 1.0):
            rows = json.loads(frame[:50].to_json(orient="records"))
            body = {"dataframe_records": rows, "params": {"tolerance": tolerance}}
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/invocations",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            until = time.monotonic() + 180
            while True:
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        found = json.load(answer)["predictions"]
                    break
                except urllib.error.HTTPError as error:
                    raise AssertionError(error.read()) from error
                except OSError:
                    assert time.monotonic() < until, (tmp_path / "log").read_text()
                    time.sleep(0.2)
            assert found == decide(model, frame[:50], tolerance).tolist()
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)
