"""Export a model as one ONNX graph: encoder, network or trees, and thresholds as an input.

The graph scores a table in float64, as the model does, and compares the scores with the thresholds
that it is given: one file serves every tolerance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairdial._files import write_file
from fairdial._onnx import Graph
from fairdial._version import __version__
from fairdial.core.frontier import refuse_prices
from fairdial.core.serialization import json_name
from fairdial.errors import InvalidInputError
from fairdial.estimators.base import DialClassifier
from fairdial.estimators.plain import PlainScorer
from fairdial.estimators.scorers import AveragedScorer, PlattMap
from fairdial.estimators.thresholds import ThresholdClassifier
from fairdial.io.save import plain_of
from fairdial.tables.encoder import TableEncoder

if TYPE_CHECKING:
    from fairdial.nn.layers import Layer
    from fairdial.nn.nets import DialNet

OWN_NAMES = ("group", "thresholds", "logit", "decision")  # inputs and outputs besides the columns


def export_onnx(model: DialClassifier, path: str | os.PathLike[str]) -> Path:
    """Write a model as an ONNX file; needs the extra ``onnx``.

    Inputs are the columns of the table, each (n, 1): float64 for numbers (NaN: missing), text or
    int64 for categories (missing: empty text, or -2**63, the smallest int64); ``group`` (n,), the
    name of the group or, if names are not text, its position in ``model.frontier_.groups``; and
    ``thresholds`` (K,) float64, in the order of the groups:
    ``model.frontier_.at(tolerance).thresholds``. Outputs are ``logit`` (n,) float64 and
    ``decision`` (n,) bool. Rows of an unknown group get the logit NaN and are not selected. The
    metadata of the file are ``groups`` and ``labels`` (JSON, in their order), ``criterion``,
    ``fairdial`` (the version), and ``model_hash`` of a loaded model.

    Parameters
    ----------
    model : FairBayes or GFB
        Fitted, with a network and a :class:`~fairdial.TableEncoder` (the default, except for tables
        with 256 numbers or more per row), or with classifiers that can be converted
        (``model.plain_``): trees of scikit-learn, LightGBM, XGBoost and CatBoost, linear models,
        and pipelines of known steps.
    path : path
        The file; an existing one is replaced.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from fairdial import FairBayes, Network
    >>> from fairdial.datasets import load_compas
    >>> from fairdial.io.onnx import export_onnx
    >>> rows = load_compas()
    >>> model = FairBayes(Network(members=1, epochs=3), recalibrate="group", random_state=0)
    >>> model = model.fit(rows.X, rows.y, sensitive_features=rows.groups)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    _check_thresholds(model)
    plain, frontier = _plain_scorers(model), model.frontier_
    net, layers, encoder = _parts(model) if plain is None else (None, None, None)
    blocks = encoder.columns_ if encoder is not None else _blocks(plain or [])
    graph = Graph(_check_names(blocks))
    code = _group_codes(graph, frontier.groups)  # K for an unknown group
    known = graph.op("Min", code, graph.integers(len(frontier.groups) - 1))
    if net is not None and layers is not None and encoder is not None:
        logit = _net_logits(graph, net, layers, _encode(graph, encoder), code, known)
    else:
        logit = _plain_logits(graph, plain or [], known)
    logit = _recalibrate(graph, logit, code, known, model.platt_, len(frontier.groups))
    limit = graph.op("Gather", graph.input("thresholds", "DOUBLE", [len(frontier.groups)]), known)
    graph.output(logit, "logit", "DOUBLE")
    graph.output(graph.op("Greater", logit, limit), "decision", "BOOL")
    metadata = {
        "groups": json.dumps([json_name(name) for name in frontier.groups]),
        "labels": json.dumps(model.classes_.tolist()),
        "criterion": frontier.criterion.name,
        "fairdial": __version__,
    }
    if hasattr(model, "model_hash_"):
        metadata["model_hash"] = model.model_hash_
    write_file(path, graph.to_bytes(metadata))
    return Path(path)


def _check_thresholds(model: DialClassifier) -> None:
    """Raise unless one threshold per group decides."""
    if not isinstance(model, ThresholdClassifier) or not hasattr(model, "frontier_"):
        raise InvalidInputError(
            "model", "be a calibrated FairBayes or GFB", given=type(model).__name__
        )
    refuse_prices(model.frontier_, "exported")
    if model.frontier_.problem.randomize is not None:
        raise InvalidInputError(
            "model",
            "decide by one threshold per group to be exported",
            given="a lottery (`randomize='hash'`)",
            hint="Calibrate it with `randomize=None`.",
        )


def _plain_scorers(model: Any) -> list[PlainScorer] | None:
    """Return the plain scorers whose logits are averaged; None if there is a network."""
    plain = plain_of(model)
    parts: list[Any] = plain.scorers if isinstance(plain, AveragedScorer) else [plain]
    return parts if all(isinstance(part, PlainScorer) for part in parts) else None


def _blocks(scorers: Sequence[PlainScorer]) -> list[Any]:
    """Return a block for each column that some model uses."""
    blocks = [b for part in scorers for one in part.models for b in one.inputs.blocks]
    return list({block.name: block for block in blocks}.values())


def _check_names(blocks: Sequence[Any]) -> list[str]:
    names = [str(block.name) for block in blocks]
    if len(set(names)) < len(names) or not {"", *OWN_NAMES}.isdisjoint(names):
        raise InvalidInputError(
            "model",
            "have columns whose names differ as text, aren't empty and aren't "
            f"{', '.join(OWN_NAMES[:-1])} or {OWN_NAMES[-1]}, which the graph uses itself",
        )
    return names


def _parts(model: DialClassifier) -> tuple[DialNet, list[Layer], TableEncoder]:
    """Return the network, its layers and the encoder of a model that can be exported."""
    net: DialNet | None = getattr(model.scorer_, "net", None)
    encoder = getattr(model, "encoder_", None)
    layers = None if net is None else net.plan()
    if net is None or layers is None or not isinstance(encoder, TableEncoder):
        reason = getattr(model, "plain_error_", None)
        raise InvalidInputError(
            "model",
            "have trees or a line that can be converted, or a network (without a trunk of your "
            "own) on a table with a TableEncoder",
            given="another scorer" if reason is None else f"one with {reason}",
            hint="For tables with 256 numbers or more per row use Network(encoder=TableEncoder()).",
        )
    return net, layers, encoder


def _encode(graph: Graph, encoder: TableEncoder) -> str:
    """(n, d) features: computed in float64 and rounded to float32, as networks get them."""
    parts = [part for block in encoder.columns_ for part in block.add_nodes(graph)]
    features = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    return graph.cast(graph.cast(features, "FLOAT"), "DOUBLE")


def _group_codes(graph: Graph, names: Sequence[Hashable]) -> str:
    """(n,) codes of the groups, K for an unknown group."""
    n_groups = len(names)
    if all(isinstance(name, str) for name in names):
        codes = {name: code for code, name in enumerate(names)}
        return graph.look_up(graph.input("group", "STRING", ["n"]), codes, default=n_groups)
    given = graph.input("group", "INT64", ["n"])
    high = graph.op("GreaterOrEqual", given, graph.integers(n_groups))
    low = graph.op("Less", given, graph.integers(0))
    return graph.op("Where", graph.op("Or", low, high), graph.integers(n_groups), given)


def _net_logits(
    graph: Graph, net: DialNet, layers: list[Layer], rows: str, code: str, known: str
) -> str:
    """(n,) logits of a network."""
    if net.shared:
        rows = graph.op("Concat", rows, graph.one_hot(code, net.groups), axis=1)
    x = graph.unsqueeze(rows, 0)  # (1, n, d)
    for layer in layers:
        x = layer.add_nodes(graph, x)
    x = graph.squeeze(x, 2)  # (S, n)
    x = graph.op("Reshape", x, graph.integers([net.members, net.copies, -1]))
    x = graph.squeeze(graph.op("ReduceMean", x, graph.integers([0])), 0)  # (1 or K, n)
    x = graph.op("Transpose", x, perm=[1, 0])
    place = graph.op("Mul", known, graph.integers(0)) if net.shared else known
    return graph.squeeze(graph.op("GatherElements", x, graph.unsqueeze(place, 1), axis=1), 1)


def _plain_logits(graph: Graph, scorers: Sequence[PlainScorer], known: str) -> str:
    """(n,) mean logits of plain scorers."""
    found = []
    for scorer in scorers:
        parts = [model.add_nodes(graph) for model in scorer.models]  # (n,) each
        if len(parts) > 1:  # one model for each group
            columns = graph.op("Concat", *[graph.unsqueeze(x, 1) for x in parts], axis=1)
            own = graph.op("GatherElements", columns, graph.unsqueeze(known, 1), axis=1)
            parts = [graph.squeeze(own, 1)]
        found.append(parts[0])
    if len(found) == 1:
        return found[0]
    columns = graph.op("Concat", *[graph.unsqueeze(x, 1) for x in found], axis=1)
    mean = graph.op("ReduceMean", columns, graph.integers([1]), keepdims=0)
    # +inf and -inf: undecided
    return graph.op("Where", graph.op("IsNaN", mean), graph.constant(0.0), mean)


def _recalibrate(
    graph: Graph, logit: str, code: str, known: str, platt: PlattMap | None, n_groups: int
) -> str:
    """(n,) logits on each group's line, NaN for an unknown group."""
    if platt is not None:
        slope = graph.op("Gather", graph.constant(platt.slope), known)
        intercept = graph.op("Gather", graph.constant(platt.intercept), known)
        logit = graph.op("Add", graph.op("Mul", slope, logit), intercept)
    unknown = graph.op("Equal", code, graph.integers(n_groups))
    return graph.op("Where", unknown, graph.constant(np.nan), logit)
