"""Networks as weights and a short description, and back.

Widths are read from the weights, so nothing is built that the file doesn't hold. Your own trunk is
code, which files don't contain: your function builds it, and the weights are loaded into it. The
library's own trunks are in :data:`TRUNKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from fairdial.errors import ModelFileError
from fairdial.io.values import Json, claim, pack, unpack
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack
from fairdial.nn.resnet import LastStage, ResNet18

# The library's own trunks by name. Such a class has ``spec()``: the arguments, as a dict of plain
# values, of its constructor, or of ``bare``, which builds one without weights.
TRUNKS: dict[str, type[nn.Module]] = {"resnet18": ResNet18, "resnet18-last": LastStage}

Weights = dict[str, Tensor]
Trunk = nn.Module | Callable[[], nn.Module]
BROKEN = (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, OverflowError)


# ---- writing -----------------------------------------------------------------------------------


def nets_to_arrays(nets: Sequence[DialNet]) -> tuple[list[dict[str, Json]], bytes]:
    """Return a description of each net, as JSON, and all weights as safetensors."""
    weights = {
        f"{i}/{name}": tensor.detach().cpu().contiguous().clone()
        for i, net in enumerate(nets)
        for name, tensor in net.state_dict().items()
    }
    return [_describe(net) for net in nets], safetensors.save(weights)


def _describe(net: DialNet) -> dict[str, Json]:
    return {
        "members": net.members,
        "groups": net.groups,
        "shared": net.shared,
        "runs": net.runs,
        "film": net.film is not None,
        "trunk": _describe_trunk(net.trunk),
    }


def _describe_trunk(trunk: nn.Module) -> dict[str, Json]:
    if isinstance(trunk, MLPTrunk):
        return {
            "kind": "layers",
            "norm": trunk.norms is not None,
            "dropout": trunk.dropout,
            "bare": trunk.bare,
            "marks": trunk.marks,
            "late": trunk.late,
        }
    assert isinstance(trunk, ModuleStack)
    module = trunk.nets[0]
    for name, known in TRUNKS.items():
        if type(module) is known:
            arguments = {k: pack(v) for k, v in module.spec().items()}  # type: ignore[operator]
            return {"kind": "library", "name": name, "arguments": arguments}
    kind = type(module)
    return {"kind": "own", "type": f"{kind.__module__}.{kind.__qualname__}"}


# ---- reading -----------------------------------------------------------------------------------


def needs_trunk(descriptions: Sequence[dict[str, Json]]) -> str | None:
    """Return the type of your own trunk, if the nets have one."""
    trunks = [net["trunk"] for net in descriptions]
    return next((str(trunk["type"]) for trunk in trunks if trunk["kind"] == "own"), None)


def library_trunk(descriptions: Sequence[dict[str, Json]]) -> Callable[[], nn.Module] | None:
    """Return a function that builds the nets' trunk, if it is one of the library's modules."""
    trunk = descriptions[0]["trunk"]
    if trunk["kind"] != "library":
        return None
    arguments = {name: unpack(value) for name, value in trunk["arguments"].items()}
    kind = TRUNKS[trunk["name"]]
    return partial(getattr(kind, "bare", kind), **arguments)


def nets_from_arrays(
    descriptions: Sequence[dict[str, Json]], body: bytes, file: str, trunk: Trunk | None = None
) -> list[DialNet]:
    """Return the nets that :func:`nets_to_arrays` was given.

    Parameters
    ----------
    descriptions : sequence of dict
        Description of each net.
    body : bytes
        Weights.
    file : str
        Name of the weights' file, for errors.
    trunk : Module or callable, optional
        Builds the trunk, if it is a module.
    """
    try:
        parts = _divide(dict(safetensors.load(body)), len(descriptions), file)
        pairs = zip(descriptions, parts, strict=True)
        return [_build(net, weights, file, trunk) for net, weights in pairs]
    except ModelFileError:
        raise
    except BROKEN as error:
        raise ModelFileError(
            f"`{file}` must hold the weights of the nets that the manifest describes "
            f"({type(error).__name__}: {error})."
        ) from error


def _divide(weights: Weights, count: int, file: str) -> list[Weights]:
    """Return the weights of each net; raise if one isn't finite."""
    parts: list[Weights] = [{} for _ in range(count)]
    for name, tensor in weights.items():
        place, _, entry = name.partition("/")
        own = entry.startswith("trunk.nets.")  # may hold infinities on purpose
        if bool(tensor.isnan().any() if own else ~tensor.isfinite().all()):
            raise ModelFileError(f"`{file}` must hold finite weights, but {name!r} doesn't.")
        parts[int(place)][entry] = tensor.clone()  # its own memory, not the file's
    return parts


def _build(data: dict[str, Json], weights: Weights, file: str, trunk: Trunk | None) -> DialNet:
    members, groups, runs = (_count(data[name]) for name in ("members", "groups", "runs"))
    shared, layout = _flag(data["shared"]), data["trunk"]
    nets = members * (1 if shared else groups)
    if members % runs:
        raise ValueError("other numbers of members in each run")
    stack: nn.Module | None = None
    if layout["kind"] != "layers":
        stack = _make(trunk, nets)
    with torch.device("meta"):  # no memory: the weights are put in below
        generator = torch.Generator("cpu")
        n_in, *widths = _widths(weights, "head.layers")
        layers = stack
        if layers is None:
            inputs, *inner = _widths(weights, "trunk.layers")
            marks, late = layout["marks"], _flag(layout["late"])
            if marks not in (0, groups) or (marks and not shared) or (late and not marks):
                raise ValueError("marks of other groups")
            n_in = inner[-1] + marks * late
            layers = MLPTrunk(
                nets,
                (inputs, *inner),
                generator,
                norm=_flag(layout["norm"]),
                dropout=float(layout["dropout"]),
                bare=_flag(layout["bare"]),
                marks=marks,
                late=late,
            )
        head = Head(nets, n_in, widths[0] if len(widths) > 1 else 0, generator, widths[-1])
        film = None
        if _flag(data["film"]):
            modulated = [*getattr(layers, "active_widths", []), *head.active_widths]
            _, *units = _widths(weights, "film.hidden")
            film = Film(nets, modulated, generator, hidden=units[0], depth=len(units))
        net = DialNet(
            layers, head, members=members, groups=groups, shared=shared, runs=runs, film=film
        )
    _put(net, weights, file, own=stack is not None)
    return net.eval()


def _make(trunk: Trunk | None, nets: int) -> ModuleStack:
    """Build the user's modules; whatever they raise becomes a ModelFileError."""
    try:
        assert trunk is not None
        return ModuleStack.copies_of(trunk, nets)
    except Exception as error:
        raise ModelFileError(
            f"`trunk` must be a torch Module or build one ({type(error).__name__}: {error})."
        ) from error


def _put(net: DialNet, weights: Weights, file: str, *, own: bool) -> None:
    """Load the weights; names, shapes and types must match."""
    expected = net.state_dict()
    wrong = sorted(set(expected) ^ set(weights))
    wrong += [
        name
        for name, tensor in weights.items()
        if name in expected
        and (expected[name].shape, expected[name].dtype) != (tensor.shape, tensor.dtype)
    ]
    if wrong:
        hint = " Is `trunk` the module of the model?" if own else ""
        raise ModelFileError(f"`{file}` must hold the weights of this net ({wrong[0]!r}).{hint}")
    for name, part in net.named_children():
        inner = {
            entry.removeprefix(f"{name}."): tensor
            for entry, tensor in weights.items()
            if entry.startswith(f"{name}.")
        }
        part.load_state_dict(inner, assign=not (own and name == "trunk"))


def _widths(weights: Weights, prefix: str) -> list[int]:
    """Return the number of inputs, then the width of each layer of a stack."""
    count = sum(name.startswith(f"{prefix}.") and name.endswith(".weight") for name in weights)
    shapes = [weights[f"{prefix}.{i}.weight"].shape for i in range(count)]
    return [shapes[0][1], *(shape[2] for shape in shapes)]


def _count(value: Json) -> int:
    claim(type(value) is int and value >= 1, "a number of nets")
    return int(value)


def _flag(value: Json) -> bool:
    claim(type(value) is bool, "true or false")
    return bool(value)
