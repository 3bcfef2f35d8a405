"""Networks as weights and a few plain words, and back.

Widths are those of the weights, so nothing is built that the file doesn't hold. A trunk of the
user's own is code, which no file brings: it is made anew by the user's function, and takes the
weights in. The library's own trunks are in :data:`TRUNKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from fairdial.errors import ModelFileError
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.resnet import ResNet18
from fairdial.persistence.values import pack, unpack

# The library's own trunks by name. Such a class has ``spec()``: the arguments, a dict of plain
# values, of its constructor, or of ``bare``, which makes one without weights.
TRUNKS: dict[str, type[nn.Module]] = {"resnet18": ResNet18}

Weights = dict[str, Tensor]
BROKEN = (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, OverflowError)


# ---- writing -----------------------------------------------------------------------------------


def nets_to_arrays(nets: Sequence[DialNet]) -> tuple[list[dict[str, Any]], bytes]:
    """What each net is, as JSON knows it, and all weights as safetensors."""
    weights = {
        f"{i}/{name}": tensor.detach().cpu().contiguous().clone()
        for i, net in enumerate(nets)
        for name, tensor in net.state_dict().items()
    }
    return [_tell(net) for net in nets], safetensors.save(weights)


def _tell(net: DialNet) -> dict[str, Any]:
    return {
        "members": net.members,
        "groups": net.groups,
        "shared": net.shared,
        "runs": net.runs,
        "film": net.film is not None,
        "trunk": _tell_trunk(net.trunk),
    }


def _tell_trunk(trunk: nn.Module) -> dict[str, Any]:
    if isinstance(trunk, MLPTrunk):
        norm = trunk.norms is not None
        told = {"kind": "layers", "norm": norm, "dropout": trunk.dropout, "bare": trunk.bare}
        return told | {"marks": trunk.marks, "late": trunk.late}
    assert isinstance(trunk, ModuleStack)
    module = trunk.nets[0]
    for name, known in TRUNKS.items():
        if type(module) is known:
            arguments = {k: pack(v) for k, v in module.spec().items()}  # type: ignore[operator]
            return {"kind": "library", "name": name, "arguments": arguments}
    kind = type(module)
    return {"kind": "own", "type": f"{kind.__module__}.{kind.__qualname__}"}


# ---- reading -----------------------------------------------------------------------------------


def needs_trunk(told: Sequence[dict[str, Any]]) -> str | None:
    """The type of the user's own trunk, where the nets have one."""
    kinds = [net["trunk"] for net in told]
    return next((str(words["type"]) for words in kinds if words["kind"] == "own"), None)


def library_trunk(told: Sequence[dict[str, Any]]) -> Callable[[], nn.Module] | None:
    """What makes the nets' trunk, where it is one of the library's own modules."""
    words = told[0]["trunk"]
    if words["kind"] != "library":
        return None
    arguments = {name: unpack(value) for name, value in words["arguments"].items()}
    kind = TRUNKS[words["name"]]
    return partial(getattr(kind, "bare", kind), **arguments)


def nets_from_arrays(
    told: Sequence[dict[str, Any]], body: bytes, file: str, trunk: Any = None
) -> list[DialNet]:
    """The nets that :func:`nets_to_arrays` was given.

    Parameters
    ----------
    told : sequence of dict
        What each net is.
    body : bytes
        Weights.
    file : str
        Where they come from, for errors.
    trunk : Module or callable, optional
        Makes the trunk, where it is a module.
    """
    try:
        parts = _divide(dict(safetensors.load(body)), len(told), file)
        return [_build(one, part, file, trunk) for one, part in zip(told, parts, strict=True)]
    except ModelFileError:
        raise
    except BROKEN as error:
        raise ModelFileError(
            f"`{file}` must hold the weights of the nets that the manifest tells of, got something "
            f"else ({type(error).__name__}: {error})."
        ) from error


def _divide(weights: Weights, count: int, file: str) -> list[Weights]:
    """The weights of each net; all are numbers."""
    parts: list[Weights] = [{} for _ in range(count)]
    for name, tensor in weights.items():
        place, _, entry = name.partition("/")
        own = entry.startswith("trunk.nets.")  # may hold infinities on purpose
        if bool(tensor.isnan().any() if own else ~tensor.isfinite().all()):
            raise ModelFileError(f"`{file}` must hold finite weights, got others in {name!r}.")
        parts[int(place)][entry] = tensor.clone()  # its own memory, not the file's
    return parts


def _build(told: dict[str, Any], weights: Weights, file: str, trunk: Any) -> DialNet:
    members, groups, runs = (_count(told[name]) for name in ("members", "groups", "runs"))
    shared, words = _flag(told["shared"]), told["trunk"]
    nets = members * (1 if shared else groups)
    if members % runs:
        raise ValueError("other numbers of members in each run")
    stack: nn.Module | None = None
    if words["kind"] != "layers":
        stack = _make(trunk, nets)
    with torch.device("meta"):  # no memory, no numbers: the weights are put in below
        generator = torch.Generator("cpu")
        n_in, *widths = _widths(weights, "head.layers")
        layers = stack
        if layers is None:
            inputs, *inner = _widths(weights, "trunk.layers")
            marks, late = words["marks"], _flag(words["late"])
            if marks not in (0, groups) or (marks and not shared) or (late and not marks):
                raise ValueError("marks of other groups")
            n_in = inner[-1] + marks * late
            layers = MLPTrunk(
                nets,
                (inputs, *inner),
                generator,
                norm=_flag(words["norm"]),
                dropout=float(words["dropout"]),
                bare=_flag(words["bare"]),
                marks=marks,
                late=late,
            )
        head = Head(nets, n_in, widths[0] if len(widths) > 1 else 0, generator)
        film = None
        if _flag(told["film"]):
            modulated = [*getattr(layers, "active_widths", []), *head.active_widths]
            _, *units = _widths(weights, "film.hidden")
            film = Film(nets, modulated, generator, hidden=units[0], depth=len(units))
        net = DialNet(
            layers, head, members=members, groups=groups, shared=shared, runs=runs, film=film
        )
    _put(net, weights, file, own=stack is not None)
    return net.eval()


def _make(trunk: Any, nets: int) -> ModuleStack:
    """The user's modules; whatever goes wrong in them is told as such."""
    try:
        return ModuleStack.of(trunk, nets)
    except Exception as error:
        raise ModelFileError(
            f"`trunk` must be a torch Module or make one, got {type(error).__name__}: {error}"
        ) from error


def _put(net: DialNet, weights: Weights, file: str, *, own: bool) -> None:
    """Take the weights in; all of them, and nothing else."""
    expected = net.state_dict()
    wrong = sorted(set(expected) ^ set(weights))
    wrong += [
        name
        for name, tensor in weights.items()
        if name in expected
        and (expected[name].shape, expected[name].dtype) != (tensor.shape, tensor.dtype)
    ]
    if wrong:
        text = f"`{file}` must hold the weights of this net, got others ({wrong[0]!r})"
        raise ModelFileError(text + (": is `trunk` the module of the model?" if own else "."))
    for name, part in net.named_children():
        inner = {
            entry.removeprefix(f"{name}."): tensor
            for entry, tensor in weights.items()
            if entry.startswith(f"{name}.")
        }
        part.load_state_dict(inner, assign=not (own and name == "trunk"))


def _widths(weights: Weights, prefix: str) -> list[int]:
    """Inputs, then the width of each layer of a stack."""
    count = sum(name.startswith(f"{prefix}.") and name.endswith(".weight") for name in weights)
    shapes = [weights[f"{prefix}.{i}.weight"].shape for i in range(count)]
    return [shapes[0][1], *(shape[2] for shape in shapes)]


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is no number of nets")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value
