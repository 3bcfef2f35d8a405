"""A trained net for each setting: what EPO and FairBiNN share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray

from fairdial._validation import check_count
from fairdial.errors import InvalidInputError
from fairdial.methods.base import Floats
from fairdial.methods.families import FamilyClassifier, Measurement
from fairdial.methods.network import Network, describe, prepare_fit, torch_module
from fairdial.methods.rows import FitRows


class SettingsClassifier(FamilyClassifier):
    """One net for each of some settings."""

    n_jobs: Any

    settings_: Floats
    history_: pd.DataFrame

    @staticmethod
    def _default_network() -> Network:
        return Network(members=1)

    def _settings(
        self,
        measure: Callable[[float], Measurement],  # noqa: ARG002
    ) -> tuple[Floats, NDArray[np.bool_]]:
        return self.settings_, np.ones(len(self.settings_), np.bool_)

    def _fit_settings(
        self,
        rows: FitRows,
        recipe: Callable[[Floats], Any],
        choose: Callable[[Any, int], Floats],
    ) -> Self:
        """Train a net for each setting that ``choose(prepared, seed)`` gives.

        ``recipe(settings)`` says how some settings train together. With one group there is no gap,
        and one plainly trained net stands for all.
        """
        network = self._network()
        prepared, seed = prepare_fit(self, network, rows)
        settings = choose(prepared, seed)
        if len(rows.names) == 1:
            settings = settings[:1]
        self.nets_, self.history_, self.best_epoch_ = fit_runs(
            self, network, prepared, recipe, settings, seed=seed, n_jobs=self.n_jobs
        )
        self.settings_, self.encoder_ = settings, prepared.encoder
        self.trained_groups_ = rows.names
        self.scorer_ = torch_module("scorer").RunsScorer(self.nets_, settings, prepared.encode)
        return self._calibrate_held_out(rows)


def plain_recipe(network: Network, objective: Any) -> Any:
    """Plain training, chosen by the prediction loss on validation rows."""
    masoba, steps = torch_module("masoba"), torch_module("steps")

    def make_step(net: Any, shares: Floats, _: int) -> Any:
        return steps.PlainStep(
            net,
            masoba.Objective(objective.rate, shares, weight=1.0, gamma=objective.gamma),
            rate=network.learning_rate,
            weight_decay=network.weight_decay,
        )

    score = torch_module("selection").score_weighted
    weights = np.array([[1.0, 0.0]])
    return torch_module("fitting").Recipe(
        make_step, partial(score, objective=objective, weights=weights)
    )


def fit_runs(
    model: FamilyClassifier,
    network: Network,
    prepared: Any,
    recipe: Callable[[Floats], Any],
    settings: Floats,
    *,
    seed: int,
    n_jobs: int = 1,
    folder: str = "settings",
) -> tuple[list[Any], pd.DataFrame, list[int]]:
    """A net for each setting: nets, history by setting and epoch, best epochs.

    The library's layers train side by side in one stack a process; a trunk of one's own one by
    one. All start with the same weights and see the same batches, whichever way.

    Parameters
    ----------
    model : FamilyClassifier
        Whose settings name the checkpoint.
    network : Network
        What is trained.
    prepared : Prepared
        Rows.
    recipe : callable
        ``recipe(settings)``: how these settings are trained together.
    settings : (S,) array
        What is set.
    seed : int
        Of weights and batches.
    n_jobs : int
        Processes.
    folder : str
        Where in the checkpoint folder their states are kept.
    """
    fitting = torch_module("fitting")
    n_jobs = check_count(n_jobs, "n_jobs")
    pieces = min(n_jobs, len(settings)) if network.trunk is None else len(settings)
    parts = np.array_split(np.arange(len(settings)), pieces)

    def fit_part(places: NDArray[np.intp]) -> Any:
        ours = recipe(settings[places])
        ours.told = f"{describe(model)} {settings[places].tolist()}"
        checkpoint = None
        if network.checkpoint is not None:
            name = f"{folder}-{places[0]:02d}-{places[-1]:02d}"
            checkpoint = Path(network.checkpoint) / name
        fitted = fitting.fit_network(network, prepared, ours, seed=seed, checkpoint=checkpoint)
        if fitted.interrupted:  # some settings half trained, others not: no family
            raise KeyboardInterrupt
        return fitted

    if n_jobs > 1:
        if torch_module("distributed").processes().size > 1:
            raise InvalidInputError(
                f"`n_jobs` must be 1 with a process group, whose processes share the work, got "
                f"{n_jobs}."
            )
        if network.callbacks:
            raise InvalidInputError("`n_jobs` must be 1 with `callbacks`, got more.")
        fitted = Parallel(n_jobs=n_jobs, backend="loky")(delayed(fit_part)(part) for part in parts)
    else:
        fitted = [fit_part(part) for part in parts]
    frames = []
    for part, one in zip(parts, fitted, strict=True):
        history = one.history.reset_index()
        run = history.pop("run") if "run" in history else 0
        frames.append(history.assign(setting=settings[part[0] + run]))
    history = pd.concat(frames).set_index(["setting", "epoch"]).sort_index()
    best = [epoch for one in fitted for epoch in one.best_epoch]
    return [one.net for one in fitted], history, best
