"""The paper's settings, as data.

Values come from the paper where it gives them, and otherwise from the authors' released
configuration; where that contradicts itself, the choice is noted. The paper tunes each method over
ranges that it doesn't state: ``tuned.json`` holds what our own search found (``fairdial bench
tune``). The library's own defaults differ where experiments showed that the paper's settings are
harmful.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fairdial._validation import check_choice, check_count
from fairdial.nn.network import Network

TUNED = Path(__file__).with_name("tuned.json")

EVERYWHERE: dict[str, Any] = {
    "members": 1,
    "shared": False,  # one network for each group
    "average": None,
    "epochs": 100,
    "patience": 10,
    "epoch": "short",  # one pass over the smaller group
    "score": "hypervolume",  # 50 tolerances on validation rows, reference (0, 1)
    "norm": True,  # after each hidden layer of the trunk
    "bare": True,  # no activation between trunk and head
    "dropout": 0.0,
}

# Learning rates are those of the data sets; with the release's 1e-6 a fresh network doesn't learn.
DATASETS: dict[str, dict[str, Any]] = {
    "adult": {
        "hidden": (384, 192, 96, 48, 348),
        "head": 1024,
        "batch_size": 1024,
        "learning_rate": 1e-3,
        "gamma": 2.0,
    },
    "compas": {
        "hidden": (384, 192, 348),
        "head": 1024,
        "batch_size": 32,
        "learning_rate": 5e-4,
        "gamma": 2.0,
    },
    "celeba": {"head": 128, "batch_size": 256, "learning_rate": 1e-4, "gamma": 0.0},
    "utkface": {"head": 128, "batch_size": 128, "learning_rate": 1e-4, "gamma": 2.0},
}

GFB_SETTINGS: dict[str, Any] = {
    "weight": 0.875,
    "aux": "step",
    "aux_rate": 1e-3,
    "moving_average": 0.1,  # fed to Adam
    "average_first": False,
    "root": "smooth",  # the release: "hard", with the batch's own shares
    "warm_epochs": 0,
}
HEAD_DECAY = 1e-4  # of GFB, as in the release
INPUTS = 768  # features of the paper's encoder for tables

# One network for each of ten settings; Adam at the data set's rate, ten epochs of patience.
EPO_SETTINGS: dict[str, Any] = {"n_settings": 10, "restricted": True, "offset": 1e-4}
# "bilevel" is the paper's text, in which Adam would make eta meaningless.
FAIRBINN_SETTINGS: dict[str, Any] = {"n_settings": 10, "preset": "release"}
# Spans the trade-off on validation rows of a split outside the paper's seeds (FairBiNN's `spanned_`
# at 1001): from the loosest gap to one decade beyond a quarter of a plain network's.
ETAS = {"adult": (1e-3, 1.0), "compas": (1e-4, 0.1)}
YOTO_SETTINGS: dict[str, Any] = {
    "bounds": (1e-6, 10.0),
    "condition": "raw",
    "identity": False,  # hyper-networks with fresh weights
    "selection": "fixed",  # the paper: "random", one weight for every epoch, which is noisier
    "targets": 10,
}
FILM = {"adult": (64, 2), "compas": (64, 2), "celeba": (256, 4), "utkface": (256, 4)}
METHODS = ("gfb", "fairbayes", "epo", "fairbinn", "yoto")
SOURCES = ("tuned", "release")


def paper_settings(
    method: str, dataset: str, *, inputs: int | None = None, source: str = "tuned"
) -> dict[str, Any]:
    """Return the paper's settings of an estimator for a data set.

    Architecture and protocol are the paper's. The paper leaves learning rates and other
    hyperparameters open: it tunes them for each method, over ranges that it doesn't state.

    Parameters
    ----------
    method : {"gfb", "fairbayes", "epo", "fairbinn", "yoto"}
        The estimator.
    dataset : {"adult", "compas", "celeba", "utkface"}
        The data set; for pictures, set the network's ``trunk`` yourself.
    inputs : int, optional
        Number of the encoder's features. The paper's networks for tables are made for 768; for
        other numbers their layers are scaled in proportion. By default they are the paper's. For
        a data set of pictures, it means that rows are features of a frozen network.
    source : {"tuned", "release"}
        Where the hyperparameters come from. "tuned": the same search for every method, on
        validation rows of splits that no study reports (``fairdial bench tune``); methods and data
        sets that haven't been tuned have the values of "release". "release": the authors' released
        configuration, with the data sets' learning rates.

    Examples
    --------
    >>> from fairdial import GFB, paper_settings
    >>> settings = paper_settings("gfb", "adult", source="release")
    >>> settings["weight"], settings["network"].batch_size
    (0.875, 1024)
    >>> model = GFB(**settings)
    """
    check_choice(method, "method", METHODS)
    check_choice(dataset, "dataset", tuple(DATASETS))
    check_choice(source, "source", SOURCES)
    settings = _release(method, dataset, inputs)
    found = tuned_values(method, dataset, features=inputs is not None)
    return settings if source == "release" or found is None else with_values(settings, found)


def _release(method: str, dataset: str, inputs: int | None) -> dict[str, Any]:
    values = EVERYWHERE | DATASETS[dataset]
    if inputs is not None and "hidden" in values:
        scale = check_count(inputs, "inputs") / INPUTS
        values["hidden"] = tuple(max(round(width * scale), 1) for width in values["hidden"])
        values["head"] = max(round(values["head"] * scale), 1)
    if method == "gfb":
        return GFB_SETTINGS | {"network": Network(**values, weight_decay=HEAD_DECAY)}
    network = Network(**values)
    if method == "fairbayes":
        return {"estimator": network}
    own = {"epo": EPO_SETTINGS, "fairbinn": FAIRBINN_SETTINGS, "yoto": YOTO_SETTINGS}[method]
    if method == "fairbinn" and dataset in ETAS:
        own = own | {"eta": ETAS[dataset], "widen": 0}
    if method == "yoto":
        own = own | {"film": FILM[dataset]}
    return own | {"network": network}


# ---- tuned values ------------------------------------------------------------------------------


def tuned_key(dataset: str, *, features: bool) -> str:
    """Return the name under which a data set's tuned values are stored.

    A network on features of a frozen ResNet isn't the one that is trained on the pictures.

    Examples
    --------
    >>> from fairdial.paper.presets import tuned_key
    >>> tuned_key("adult", features=True), tuned_key("utkface", features=True)
    ('adult', 'utkface features')
    """
    return dataset if "hidden" in DATASETS[dataset] or not features else f"{dataset} features"


def tuned_values(
    method: str, dataset: str, *, features: bool = False
) -> dict[str, dict[str, Any]] | None:
    """Return the tuned ``arguments`` and ``network`` arguments; None where nothing was tuned."""
    found = read_chosen(TUNED).get(tuned_key(dataset, features=features), {}).get(method)
    return None if found is None else {name: found[name] for name in ("arguments", "network")}


@cache
def read_chosen(path: Path) -> dict[str, dict[str, Any]]:
    """Return the choices of tuning in a file, by data set and method."""
    chosen: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))["chosen"]
    return chosen


def with_values(settings: dict[str, Any], values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return settings of an estimator with other arguments, and with a network of other ones."""
    place = "estimator" if "estimator" in settings else "network"
    network = settings[place].set_params(**as_tuples(values["network"]))
    return settings | as_tuples(values["arguments"]) | {place: network}


def as_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with tuples for lists, which is all that TOML and JSON have."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
