"""Families of networks: what EPO, FairBiNN and YOTO share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from fairdial._arrays import Floats, Indices, Mask
from fairdial._validation import check_count
from fairdial.core.rates import SELECTION
from fairdial.errors import InvalidInputError
from fairdial.estimators.families import FamilyClassifier, Measurement
from fairdial.estimators.network import (
    chosen_network,
    describe,
    prepare_data,
    report_training,
)
from fairdial.estimators.rows import Rows
from fairdial.nn.network import Network

if TYPE_CHECKING:
    from fairdial.nn.data import TrainingData
    from fairdial.nn.fit import Fitted, Method
    from fairdial.nn.nets import DialNet
    from fairdial.nn.steps import Step
    from fairdial.nn.tradeoff import Tradeoff

    MakeMethod = Callable[[Floats], Method]  # how some settings are trained together


class NetworkFamily(FamilyClassifier):
    """A family whose members are networks."""

    network: Network | None
    _default_members: ClassVar[int] = Network().members

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        encodes = self._network().encoder is not None
        tags.input_tags.allow_nan = tags.input_tags.string = encodes
        return tags

    def _network(self) -> Network:
        """Return the settings of what is trained."""
        return chosen_network(self.network, Network(members=self._default_members))


class SettingsClassifier(NetworkFamily):
    """One network for each of several settings."""

    n_jobs: int
    _default_members: ClassVar[int] = 1

    settings_: Floats
    nets_: list[DialNet]
    history_: pd.DataFrame
    best_epoch_: list[int]

    def _settings(
        self,
        measure: Callable[[float], Measurement],  # noqa: ARG002
    ) -> tuple[Floats, Mask]:
        return self.settings_, np.ones(len(self.settings_), np.bool_)

    def _fit_settings(
        self,
        rows: Rows,
        make_method: MakeMethod,
        choose: Callable[[TrainingData, int], Floats],
    ) -> Self:
        """Train a network for each setting that ``choose(data, seed)`` returns.

        With one group there is no gap, and one plainly trained network stands for all settings.
        """
        network = self._network()
        data, seed = prepare_data(self, network, rows)
        from fairdial.nn.scorer import RunsScorer

        settings = choose(data, seed)
        if data.n_groups == 1:
            settings = settings[:1]
        runs = Runs(describe(self), network, data, seed)
        fitted = runs.fit(make_method, settings, n_jobs=self.n_jobs)
        report_training(self, network, data, fitted.history, fitted.best_epoch)
        self.nets_, self.history_, self.best_epoch_ = fitted
        self.settings_, self.encoder_ = settings, data.encode.encoder
        self.trained_groups_ = rows.groups
        self.scorer_ = RunsScorer(self.nets_, settings, data.encode)
        return self._calibrate_held_out(rows)


def plain_method(network: Network, objective: Tradeoff) -> Method:
    """Return plain training, with the epoch selected by the prediction loss on validation rows."""
    from fairdial.nn.fit import Method
    from fairdial.nn.masoba import Objective
    from fairdial.nn.selection import score_weighted
    from fairdial.nn.steps import PlainStep

    def make_step(net: DialNet, shares: Floats, _: int) -> Step:
        return PlainStep(
            net,
            Objective(SELECTION, shares, weight=1.0, gamma=objective.gamma),
            rate=network.learning_rate,
            weight_decay=network.weight_decay,
        )

    weights = np.array([[1.0, 0.0]])
    return Method(make_step, partial(score_weighted, objective=objective, weights=weights))


class FittedRuns(NamedTuple):
    """A net for each setting."""

    nets: list[DialNet]
    history: pd.DataFrame  # by setting and epoch
    best_epoch: list[int]


class Runs(NamedTuple):
    """Trains networks at several settings, on the same rows, from the same weights.

    The library's own layers train side by side, in one stack per process; networks with the user's
    own trunk train one by one. The results are the same either way.
    """

    description: str  # of the method, for checkpoints
    network: Network
    data: TrainingData
    seed: int

    def fit(
        self,
        make_method: MakeMethod,
        settings: Floats,
        *,
        n_jobs: int = 1,
        folder: str = "settings",
    ) -> FittedRuns:
        """Train a network for each setting.

        Parameters
        ----------
        make_method : callable
            ``make_method(settings)`` says how these settings are trained together.
        settings : (S,) array
            The settings.
        n_jobs : int
            Number of processes.
        folder : str
            Prefix of the subfolders for checkpoints.
        """
        n_jobs = check_count(n_jobs, "n_jobs")
        n_parts = min(n_jobs, len(settings)) if self.network.trunk is None else len(settings)
        parts = np.array_split(np.arange(len(settings)), n_parts)
        fit_part = partial(self._fit_part, make_method, settings, folder)
        if n_jobs > 1:
            self._refuse_jobs(n_jobs)
            jobs = Parallel(n_jobs=n_jobs, backend="loky")
            fitted = list(jobs(delayed(fit_part)(part) for part in parts))
        else:
            fitted = [fit_part(part) for part in parts]
        frames = []
        for part, one in zip(parts, fitted, strict=True):
            history = one.history.reset_index()
            run = history.pop("run") if "run" in history else 0
            frames.append(history.assign(setting=settings[part[0] + run]))
        history = pd.concat(frames).set_index(["setting", "epoch"]).sort_index()
        best_epoch = [epoch for one in fitted for epoch in one.best_epoch]
        return FittedRuns([one.net for one in fitted], history, best_epoch)

    def _fit_part(
        self, make_method: MakeMethod, settings: Floats, folder: str, places: Indices
    ) -> Fitted:
        from fairdial.nn.fit import fit_network

        chosen = settings[places]
        method = replace(make_method(chosen), description=f"{self.description} {chosen.tolist()}")
        checkpoint = None
        if self.network.checkpoint is not None:
            name = f"{folder}-{places[0]:02d}-{places[-1]:02d}"
            checkpoint = Path(self.network.checkpoint) / name
        fitted = fit_network(self.network, self.data, method, seed=self.seed, checkpoint=checkpoint)
        if fitted.interrupted:  # a partly trained family is useless
            raise KeyboardInterrupt
        return fitted

    def _refuse_jobs(self, n_jobs: int) -> None:
        from fairdial.nn.distributed import process_rank

        if process_rank().size > 1:
            raise InvalidInputError(
                "n_jobs",
                "be 1 with a process group, whose processes share the work",
                given=n_jobs,
            )
        if self.network.callbacks:
            raise InvalidInputError("n_jobs", "be 1 with `callbacks`", given=n_jobs)
