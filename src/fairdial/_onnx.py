"""Build ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fairdial.errors import InvalidInputError, MissingExtraError, install_command

OPSET, ML_OPSET = 18, 3
TREE_OPSET = 5  # of ai.onnx.ml, for graphs with trees
IR_VERSION = 9
INT64 = np.iinfo(np.int64)


def import_onnx() -> ModuleType:
    """Return the module onnx, or raise an error that names the extra to install."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingExtraError(f"Exporting needs onnx: {install_command('onnx')}.") from None
    return onnx


class Graph:
    """Collect the nodes of an ONNX graph; methods that compute return the name of their result.

    Parameters
    ----------
    reserved : iterable of str
        Names of inputs: no inner value gets a name that starts like one of them.
    """

    def __init__(self, reserved: Iterable[str]) -> None:
        self._onnx = import_onnx()
        self._prefix, taken = "fairdial/", list(reserved)
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "/"
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        """Add an operator with one result."""
        name = f"{self._prefix}v{len(self._nodes)}"
        make = self._onnx.helper.make_node
        self._nodes.append(make(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, values: ArrayLike, dtype: DTypeLike = np.float64) -> str:
        """Store an array."""
        name = f"{self._prefix}c{len(self._constants)}"
        array = np.asarray(values, dtype, order="C")
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def tensor(self, values: ArrayLike) -> Any:
        """Return an array as the attribute of an operator."""
        return self._onnx.numpy_helper.from_array(np.ascontiguousarray(values))

    def integers(self, values: ArrayLike) -> str:
        """Store an int64 array."""
        return self.constant(values, np.int64)

    def cast(self, value: str, dtype: str) -> str:
        """Convert a value to another ONNX type."""
        return self.op("Cast", value, to=getattr(self._onnx.TensorProto, dtype))

    def clip(self, value: str, low: float, high: float) -> str:
        """Limit a float64 value."""
        return self.op("Clip", value, self.constant(low), self.constant(high))

    def squeeze(self, value: str, axis: int) -> str:
        """Drop an axis of length 1."""
        return self.op("Squeeze", value, self.integers([axis]))

    def unsqueeze(self, value: str, axis: int) -> str:
        """Add an axis of length 1."""
        return self.op("Unsqueeze", value, self.integers([axis]))

    def one_hot(self, codes: str, width: int) -> str:
        """(n,) codes -> (n, width) float64; all 0 where a code is out of range."""
        equal = self.op("Equal", self.unsqueeze(codes, 1), self.integers(np.arange(width)[None]))
        return self.cast(equal, "DOUBLE")

    def look_up(self, keys: str, codes: Mapping[Any, int], *, default: int) -> str:
        """Map keys, all text or all integers, to codes."""
        kind = "keys_int64s" if all(isinstance(key, int) for key in codes) else "keys_strings"
        return self.op(
            "LabelEncoder",
            keys,
            domain="ai.onnx.ml",
            values_int64s=list(codes.values()),
            default_int64=default,
            **{kind: list(codes)},
        )

    def input(self, name: str, dtype: str, shape: Sequence[str | int]) -> str:
        """Declare an input, unless it is declared already."""
        info = self._info(name, dtype, shape)
        if all(known.name != name for known in self._inputs):
            self._inputs.append(info)
        elif info not in self._inputs:
            raise InvalidInputError(
                "model", "read each column as one type", given=f"{name!r} as text and as numbers"
            )
        return name

    def output(self, value: str, name: str, dtype: str) -> None:
        """Declare a value as an output of shape (n,)."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._info(name, dtype, ["n"]))

    def _info(self, name: str, dtype: str, shape: Sequence[str | int]) -> Any:
        type_ = getattr(self._onnx.TensorProto, dtype)
        return self._onnx.helper.make_tensor_value_info(name, type_, list(shape))

    def to_bytes(self, metadata: dict[str, str]) -> bytes:
        """Return the checked model as the content of an ONNX file."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, "fairdial", self._inputs, self._outputs, self._constants
        )
        trees = any(node.op_type == "TreeEnsemble" for node in self._nodes)
        ml_opset = TREE_OPSET if trees else ML_OPSET
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ml_opset)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="fairdial", ir_version=IR_VERSION
        )
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
