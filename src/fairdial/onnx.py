"""A model as one ONNX graph: encoder, network, and thresholds as an input.

The graph scores a table in float64 as the model does and compares with the thresholds that it is
given, so that one file serves every tolerance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from fairdial._version import __version__
from fairdial.encoders import CLIP, TableEncoder
from fairdial.errors import InvalidInputError, MissingExtraError, say_install
from fairdial.methods.thresholds import ThresholdClassifier

OPSET, ML_OPSET = 18, 3
NORM_EPSILON = 1e-5  # torch's
OWN_NAMES = ("group", "thresholds", "logit", "decision")  # inputs and outputs besides the columns
INNER = "fairdial"  # starts the names of all other values; lengthened until no column's name does
NO_NUMBER = np.iinfo(np.int64).min  # a whole number that is missing
COMMON = (
    "the network of FairBayes or GFB on a table, with a TableEncoder (where a row is 256 numbers "
    "or more: Network(encoder=TableEncoder()))"
)


def export_onnx(model: Any, path: str | os.PathLike[str]) -> Path:
    """Write a model as an ONNX file; needs the extra ``onnx``.

    Inputs are the table's columns, each (n, 1): float64 for numbers (NaN: missing), text or whole
    numbers for categories (missing: the empty text, or -2**63, the least int64); ``group`` (n,),
    the group's name or, where names are not texts, its place among ``model.frontier_.groups``; and
    ``thresholds`` (K,) float64, in the order of the groups:
    ``model.frontier_.at(tolerance).thresholds``. Outputs are ``logit`` (n,) float64 and
    ``decision`` (n,) bool. A group that the model doesn't know has the logit NaN and isn't
    selected. Metadata of the file: ``groups`` and ``labels`` (JSON, in their order), ``criterion``,
    ``fairdial`` (the version), and ``model_hash`` of a model that was loaded.

    Parameters
    ----------
    model : FairBayes or GFB
        Fitted, with a network on a table and a :class:`~fairdial.TableEncoder`: the default, but
        for tables of 256 numbers or more a row.
    path : path
        The file; replaced if it is there.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from fairdial import FairBayes, Network
    >>> from fairdial.datasets import load_compas
    >>> from fairdial.onnx import export_onnx
    >>> rows = load_compas()
    >>> model = FairBayes(Network(members=1, epochs=3), recalibrate="group", random_state=0)
    >>> model = model.fit(rows.X, rows.y, sensitive_features=rows.groups)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    onnx = _need_onnx()
    net, encoder = _parts(model)
    graph = _Graph(onnx, _inner_prefix([str(rule.name) for rule in encoder.columns_]))
    rows = graph.encode(encoder)
    logit, code = graph.score(net, rows, model)
    graph.decide(logit, code, len(model.frontier_.groups))
    told = {
        "groups": json.dumps([_plain(name) for name in model.frontier_.groups]),
        "labels": json.dumps([_plain(label) for label in model.classes_]),
        "criterion": model.frontier_.criterion.name,
        "fairdial": __version__,
    }
    if hasattr(model, "model_hash_"):
        told["model_hash"] = model.model_hash_
    target = Path(path)
    half = target.with_name(f".{uuid4().hex}.{target.name}")
    try:
        half.write_bytes(graph.finish(told))
        os.replace(half, target)
    finally:
        half.unlink(missing_ok=True)
    return target


def _need_onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingExtraError(f"exporting needs onnx: {say_install('onnx')}.") from None
    return onnx


def _parts(model: Any) -> tuple[Any, TableEncoder]:
    """The network and the encoder of a model that can be exported."""
    if not isinstance(model, ThresholdClassifier) or not hasattr(model, "frontier_"):
        raise InvalidInputError(
            f"`model` must be a calibrated FairBayes or GFB, got {type(model).__name__}: its "
            "decisions are not thresholds on one score."
        )
    net = getattr(model.scorer_, "net", None)
    encoder = getattr(model, "encoder_", None)
    known = net is not None and hasattr(net.trunk, "layers") and not net.trunk.marks
    if not known or not isinstance(encoder, TableEncoder):
        raise InvalidInputError(f"`model` must have {COMMON}, got another scorer.")
    names = [str(rule.name) for rule in encoder.columns_]
    if len(set(names)) < len(names) or not {"", *OWN_NAMES}.isdisjoint(names):
        raise InvalidInputError(
            "`model` must have columns whose names differ as text, aren't empty and aren't called "
            f"{', '.join(OWN_NAMES[:-1])} or {OWN_NAMES[-1]}, which are inputs and outputs of the "
            "graph, got others."
        )
    for rule in encoder.columns_:
        categories = getattr(rule, "categories", ())
        texts = [isinstance(value, str) for value in categories]
        whole = [isinstance(value, int) and not isinstance(value, bool) for value in categories]
        if not (all(texts) or all(whole)) or not _storable(categories):
            raise InvalidInputError(
                f"`model` must have categories that are all texts (not empty) or all whole "
                f"numbers above -2**63 and below 2**63, got others in column {rule.name!r}."
            )
    return net, encoder


def _storable(categories: Sequence[Any]) -> bool:
    """Whether each fits its input, and none is what stands for a missing value."""
    return all(
        value != "" if isinstance(value, str) else NO_NUMBER < value <= np.iinfo(np.int64).max
        for value in categories
    )


def _inner_prefix(names: Sequence[str]) -> str:
    """How names of the graph's inner values start, and no column's does."""
    prefix = f"{INNER}/"
    while any(name.startswith(prefix) for name in names):
        prefix += "/"
    return prefix


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class _Graph:
    """Nodes, in order; every method gives the name of what it has computed."""

    def __init__(self, onnx: Any, prefix: str) -> None:
        self._onnx, self._helper, self._prefix = onnx, onnx.helper, prefix
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    # ---- pieces --------------------------------------------------------------------------------

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One operation with one result."""
        name = f"{self._prefix}v{len(self._nodes)}"
        self._nodes.append(
            self._helper.make_node(kind, list(inputs), [name], domain=domain, **attributes)
        )
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """A stored array."""
        name = f"{self._prefix}c{len(self._constants)}"
        array = np.ascontiguousarray(values, dtype)
        self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def input(self, name: str, kind: str, shape: Sequence[Any]) -> str:
        """Something that a caller gives."""
        type_ = getattr(self._onnx.TensorProto, kind)
        self._inputs.append(self._helper.make_tensor_value_info(name, type_, list(shape)))
        return name

    def output(self, value: str, name: str, kind: str) -> None:
        """Something that a caller gets, (n,)."""
        self._nodes.append(self._helper.make_node("Identity", [value], [name]))
        type_ = getattr(self._onnx.TensorProto, kind)
        self._outputs.append(self._helper.make_tensor_value_info(name, type_, ["n"]))

    def cast(self, value: str, kind: str) -> str:
        """Another type of numbers."""
        return self.op("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    # ---- the model -----------------------------------------------------------------------------

    def encode(self, encoder: TableEncoder) -> str:
        """(n, d) features: computed in float64 and rounded to float32, as the encoder does."""
        parts = []
        for rule in encoder.columns_:
            parts += self._numbers(rule) if rule.kind == "numeric" else self._categories(rule)
        features = self.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        return self.cast(self.cast(features, "FLOAT"), "DOUBLE")

    def _numbers(self, rule: Any) -> list[str]:
        given = self.input(str(rule.name), "DOUBLE", ["n", 1])
        missing = self.op("IsNaN", given)
        value = self.op("Where", missing, self.constant([[rule.centre]]), given)
        scaled = self.op("Sub", value, self.constant([[rule.centre]]))
        scaled = self.op("Div", scaled, self.constant([[rule.scale]]))
        parts = [self._clip(scaled, -CLIP, CLIP)]
        if rule.edges:
            edges = np.array(rule.edges)
            way = self.op("Sub", value, self.constant(edges[None, :-1]))
            way = self.op("Div", way, self.constant(np.diff(edges)[None]))
            parts.append(self._clip(way, 0.0, 1.0))
        if rule.missing:
            parts.append(self.cast(missing, "DOUBLE"))
        return parts

    def _clip(self, value: str, low: float, high: float) -> str:
        return self.op("Clip", value, self.constant(low), self.constant(high))

    def _categories(self, rule: Any) -> list[str]:
        other = len(rule.categories)
        places = list(range(other))
        if all(isinstance(value, str) for value in rule.categories):
            given = self.input(str(rule.name), "STRING", ["n", 1])
            keys = {"keys_strings": [*rule.categories, ""]}
        else:
            given = self.input(str(rule.name), "INT64", ["n", 1])
            keys = {"keys_int64s": [*rule.categories, NO_NUMBER]}
        places.append(other + rule.missing)  # of a missing one: its own, or another value's
        code = self.op(
            "LabelEncoder",
            given,
            domain="ai.onnx.ml",
            values_int64s=places,
            default_int64=other,
            **keys,
        )
        return [self._one_hot(self.op("Squeeze", code, self.constant([1], np.int64)), rule.width)]

    def _one_hot(self, code: str, width: int) -> str:
        column = self.op("Unsqueeze", code, self.constant([1], np.int64))
        found = self.op("Equal", column, self.constant(np.arange(width)[None], np.int64))
        return self.cast(found, "DOUBLE")

    def score(self, net: Any, rows: str, model: Any) -> tuple[str, str]:
        """(n,) logits and (n,) group codes, K for an unknown group."""
        names = model.frontier_.groups
        code = self._group(names)
        if net.shared:
            rows = self.op("Concat", rows, self._one_hot(code, len(names)), axis=1)
        x = self.op("Unsqueeze", rows, self.constant([0], np.int64))  # (1, n, d)
        trunk = net.trunk
        last = len(trunk.layers) - 1
        for i, layer in enumerate(trunk.layers):
            x = self._linear(x, layer)
            if i == last and trunk.bare:
                break
            x = self.op("Relu", x)
            if trunk.norms is not None and i < last:
                x = self._norm(x, trunk.norms[i])
        for i, layer in enumerate(net.head.layers):
            x = self._linear(self.op("Relu", x) if i else x, layer)
        x = self.op("Squeeze", x, self.constant([2], np.int64))  # (S, n)
        shape = self.constant([net.members, net.copies, -1], np.int64)
        x = self.op("ReduceMean", self.op("Reshape", x, shape), self.constant([0], np.int64))
        x = self.op("Squeeze", x, self.constant([0], np.int64))  # (1 or K, n)
        x = self.op("Transpose", x, perm=[1, 0])
        known = self.op("Min", code, self.constant(len(names) - 1, np.int64))
        place = known if not net.shared else self.op("Mul", known, self.constant(0, np.int64))
        place = self.op("Unsqueeze", place, self.constant([1], np.int64))
        x = self.op(
            "Squeeze", self.op("GatherElements", x, place, axis=1), self.constant([1], np.int64)
        )
        if model.platt_ is not None:
            slope = self.op("Gather", self.constant(model.platt_.slope), known)
            shift = self.op("Gather", self.constant(model.platt_.intercept), known)
            x = self.op("Add", self.op("Mul", slope, x), shift)
        unknown = self.op("Equal", code, self.constant(len(names), np.int64))
        return self.op("Where", unknown, self.constant(np.nan), x), known

    def _group(self, names: Sequence[Any]) -> str:
        if all(isinstance(name, str) for name in names):
            given = self.input("group", "STRING", ["n"])
            return self.op(
                "LabelEncoder",
                given,
                domain="ai.onnx.ml",
                keys_strings=list(names),
                values_int64s=list(range(len(names))),
                default_int64=len(names),
            )
        given = self.input("group", "INT64", ["n"])
        high = self.op("GreaterOrEqual", given, self.constant(len(names), np.int64))
        low = self.op("Less", given, self.constant(0, np.int64))
        outside = self.op("Or", low, high)
        return self.op("Where", outside, self.constant(len(names), np.int64), given)

    def _linear(self, x: str, layer: Any) -> str:
        product = self.op("MatMul", x, self.constant(_array(layer.weight)))
        return self.op("Add", product, self.constant(_array(layer.bias)))

    def _norm(self, x: str, norm: Any) -> str:
        axis = self.constant([-1], np.int64)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axis))
        spread = self.op("ReduceMean", self.op("Mul", centred, centred), axis)
        spread = self.op("Sqrt", self.op("Add", spread, self.constant(NORM_EPSILON)))
        scaled = self.op("Mul", self.op("Div", centred, spread), self.constant(_array(norm.weight)))
        return self.op("Add", scaled, self.constant(_array(norm.bias)))

    def decide(self, logit: str, code: str, n_groups: int) -> None:
        """The outputs: a row is selected where its logit is above its group's threshold."""
        thresholds = self.input("thresholds", "DOUBLE", [n_groups])
        limit = self.op("Gather", thresholds, code)
        self.output(logit, "logit", "DOUBLE")
        self.output(self.op("Greater", logit, limit), "decision", "BOOL")

    def finish(self, told: dict[str, str]) -> bytes:
        """The checked file."""
        helper = self._helper
        graph = helper.make_graph(
            self._nodes, "fairdial", self._inputs, self._outputs, list(self._constants.values())
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        file = helper.make_model(
            graph, opset_imports=opsets, producer_name="fairdial", ir_version=9
        )
        helper.set_model_props(file, told)
        self._onnx.checker.check_model(file)
        return bytes(file.SerializeToString())


def _array(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().double().numpy(), np.float64)
