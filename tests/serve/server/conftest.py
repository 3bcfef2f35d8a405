"""Saved models of every kind, their rows as JSON, and clients of their server."""

from __future__ import annotations

import asyncio
import math
import runpy
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fairdial import EPO, GFB, YOTO, Costs, FairBayes, Network, TableEncoder, load
from fairdial.serve.startup import make_app, prepare

TOKEN = "a-token-of-enough-letters"
ROWS = 1_500


@dataclass(frozen=True)
class Case:
    """A saved model and rows that it has not seen."""

    folder: Path
    model: Any
    X: Any
    groups: Any

    @property
    def features(self) -> list[Any]:
        """The rows as JSON has them."""
        if isinstance(self.X, pd.DataFrame):
            return [{k: plain(v) for k, v in r.items()} for r in self.X.to_dict("records")]
        return [[plain(v) for v in row] for row in self.X]

    def rows(self, start: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
        """Rows to send."""
        return [
            {"features": features, "group": plain(group)}
            for features, group in zip(self.features, self.groups, strict=True)
        ][start:stop]


class Client:
    """Asks an application in this process, which starts and ends as it does in a server."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1)  # a browser's tests leave a loop in the main one
        self._messages: list[asyncio.Queue[Any]] = []
        self.run(self._start())

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine gives, beside the application."""
        return self._thread.submit(self._runner.run, what).result()

    async def _start(self) -> None:
        self._messages = [asyncio.Queue(), asyncio.Queue()]
        given, answered = self._messages
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._life = asyncio.ensure_future(self.app(scope, given.get, answered.put))
        await given.put({"type": "lifespan.startup"})
        assert (await answered.get())["type"] == "lifespan.startup.complete"

    async def _end(self) -> None:
        given, answered = self._messages
        await given.put({"type": "lifespan.shutdown"})
        assert (await answered.get())["type"] == "lifespan.shutdown.complete"
        await self._life

    def close(self) -> None:
        if not self._life.done():
            self.run(self._end())
            self._thread.submit(self._runner.close).result()
            self._thread.shutdown()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask; an exception that reaches the server is raised here."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as one:
                return await one.request(method, path, **options)

        return self.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def put(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PUT", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)


def plain(value: Any) -> Any:
    """A value as JSON has it; what is missing is null."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def draw(seed: int, *, missing: bool = True) -> tuple[pd.DataFrame, Any, Any]:
    """A table of all kinds of columns, labels and groups."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 3, ROWS)
    age = rng.normal(40, 12, ROWS)
    income = rng.lognormal(3, 1, ROWS).astype(int)
    job = rng.choice(["cook", "nurse", "pilot", "clerk"], ROWS)
    member = rng.random(ROWS) < 0.4
    logits = 0.05 * (age - 40) + 0.02 * income + 0.8 * member - 1.2 + 0.7 * (groups - 1)
    y = rng.random(ROWS) < 1 / (1 + np.exp(-logits))
    X = pd.DataFrame({"age": age, "income": income, "job": job, "member": member})
    if missing:
        X.loc[rng.random(ROWS) < 0.05, "age"] = np.nan
        X.loc[rng.random(ROWS) < 0.05, "job"] = None
    return X, y.astype(int), groups


NAMES = np.array(["north", "south", "east"], dtype=object)
SMALL = Network(hidden=(8,), head=4, epochs=1, members=2)


def _pipeline(**options: Any) -> Any:
    estimator = make_pipeline(TableEncoder(), LogisticRegression(max_iter=500))
    return FairBayes(estimator, random_state=0, tolerance=0.1, **options)


def make_pipeline_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(0)
    return _pipeline(), X, y, NAMES[groups], None


def make_per_group_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(1)
    words = np.array(["no", "yes"])[y]
    model = _pipeline(
        criterion="equal_opportunity", per_group=True, recalibrate="group", min_count=10
    )
    return model, X, words, np.minimum(groups, 1), None


def make_cross_fitted_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(2)
    return _pipeline(cv=2), X, y, NAMES[groups], None


def make_network_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(3)
    return GFB(network=SMALL, tolerance=0.1, random_state=0), X, y, groups == 0, None


def make_modulated_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(4)
    model = YOTO(network=Network(hidden=(8,), head=4, epochs=1, members=1), random_state=0)
    return model, X, y, NAMES[np.minimum(groups, 1)], 0.9


def make_family_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(5)
    network = Network(hidden=(8,), head=4, epochs=2, members=1)
    model = EPO(n_settings=3, network=network, random_state=0, tolerance=0.5)
    return model, X, y, NAMES[np.minimum(groups, 1)], 0.9


def make_table_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(6)
    X["job"] = X["job"].astype("category")
    model = FairBayes(HistGradientBoostingClassifier(max_iter=10, random_state=0), random_state=0)
    return model, X, y, NAMES[groups], None


def make_array_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, _ = draw(7, missing=False)
    model = FairBayes(LogisticRegression(max_iter=500), random_state=0)
    return model, X[["age", "income", "member"]].to_numpy(float), y, None, None


def make_odds_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(8)
    steps = make_pipeline(TableEncoder(), LogisticRegression(max_iter=500))
    more = {"calibration": 0.5, "random_state": 0}
    model = FairBayes(steps, criterion="equalized_odds", tolerance=0.1, **more)
    return model, X, y, NAMES[np.minimum(groups, 1)], None


def make_combined_case() -> tuple[Any, Any, Any, Any, Any]:
    X, y, groups = draw(9)
    steps = make_pipeline(TableEncoder(), LogisticRegression(max_iter=500))
    demands = {"demographic_parity": 0.2, "equal_opportunity": 0.1}
    model = FairBayes(
        steps,
        criterion=demands,
        objective=Costs(1, 3),
        budget=0.6,
        nested=True,
        calibration=0.5,
        random_state=0,
    )
    return model, X, y, NAMES[np.minimum(groups, 1)], None


def make_lottery_case() -> tuple[Any, Any, Any, Any, Any]:
    model, *rest = make_odds_case()
    return model.set_params(randomize="hash"), *rest


MAKERS: dict[str, Callable[[], tuple[Any, Any, Any, Any, Any]]] = {
    "pipeline": make_pipeline_case,
    "per group": make_per_group_case,
    "cross-fitted": make_cross_fitted_case,
    "network": make_network_case,
    "modulated": make_modulated_case,
    "family": make_family_case,
    "table": make_table_case,
    "array": make_array_case,
    "equalized odds": make_odds_case,
    "combined": make_combined_case,
    "lottery": make_lottery_case,
}


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Saved models by name, each made once."""
    folder = tmp_path_factory.mktemp("models")
    known: dict[str, Case] = {}

    def find(name: str) -> Case:
        if name not in known:
            model, X, y, groups, tolerance = MAKERS[name]()
            held = np.arange(ROWS) < 200
            take = X.iloc if isinstance(X, pd.DataFrame) else X
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = None if groups is None else groups[~held]
                model.fit(take[~held], y[~held], sensitive_features=given)
            if tolerance is not None:
                model.tolerance = tolerance
            place = folder / name.replace(" ", "-")
            model.save(place)
            shown = np.full(200, None) if groups is None else groups[held]
            known[name] = Case(place, load(place), take[held], shown)
        return known[name]

    return find


class Database:
    """A PostgreSQL server, with a new schema for each log."""

    def __init__(self, server: Any) -> None:
        self.server, self._number = server, 0

    def fresh(self) -> str:
        """Return the address of a new, empty schema."""
        self._number += 1
        self.server.execute(self.server.url(), f"CREATE SCHEMA log{self._number}")
        return str(self.server.url(f"log{self._number}"))


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    """A real server, from the system's packages."""
    script = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "postgres.py"))
    if script["programs"]() is None:
        pytest.skip("PostgreSQL is not installed")
    with script["running"]() as server:
        yield Database(server)


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where an audit log may be."""
    if request.param == "file":
        return tmp_path / "folder" / "audit.sqlite"
    found: str = request.getfixturevalue("database").fresh()
    return found


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What a server's processes need to know, with logs in a folder of this test's own."""
    monkeypatch.setenv("FAIRDIAL_TOKEN", TOKEN)

    def make(case: Case, **options: Any) -> Any:
        usual = {
            "audit": tmp_path / "audit.sqlite",
            "read_only": False,
            "tolerance": None,
            "confidence": None,
            "token_env": "FAIRDIAL_TOKEN",
            "open_observe": True,
            "key": None,
            "hosts": None,
            "scratch": tmp_path,
        }
        return prepare(case.folder, **(usual | options))

    return make


@pytest.fixture
def client(settings: Callable[..., Any]) -> Iterator[Callable[..., Client]]:
    """Clients of applications in this process."""
    opened: list[Client] = []

    def make(case: Case, **options: Any) -> Client:
        found = Client(make_app(settings(case, **options)))
        opened.append(found)
        return found

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def token() -> dict[str, str]:
    """The header that moves the dial."""
    return {"Authorization": f"Bearer {TOKEN}"}
