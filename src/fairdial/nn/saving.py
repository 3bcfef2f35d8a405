"""Networks as weights and a few plain words, and back.

Widths are those of the weights, so nothing is built that the file doesn't hold. A trunk of the
user's own is code, which no file brings: it is made anew by the user's function, and takes the
weights. The library's own trunks are in :data:`TRUNKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from fairdial.errors import InvalidInputError, ModelFileError
from fairdial.nn.nets import DialNet, Film, Head, MLPTrunk, ModuleStack

# The library's own trunks by name. Such a class has ``spec()``: its constructor's arguments, plain.
TRUNKS: dict[str, type[nn.Module]] = {}

Weights = dict[str, Tensor]


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
        return {"kind": "layers", "norm": norm, "dropout": trunk.dropout, "bare": trunk.bare}
    assert isinstance(trunk, ModuleStack)
    kind = type(trunk.nets[0])
    for name, known in TRUNKS.items():
        if kind is known:
            return {"kind": "library", "name": name, "arguments": trunk.nets[0].spec()}  # type: ignore[operator]
    return {"kind": "own", "type": f"{kind.__module__}.{kind.__qualname__}"}


def library_trunk(words: dict[str, Any]) -> Callable[[], nn.Module]:
    """What makes one of the library's own trunks."""
    return partial(TRUNKS[words["name"]], **words["arguments"])


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
        Makes the trunk, where it is the user's own.
    """
    try:
        weights = dict(safetensors.load(body))
    except SafetensorError as error:
        raise ModelFileError(f"`{file}` must be safetensors, got others ({error}).") from error
    parts: list[Weights] = [{} for _ in told]
    for name, tensor in weights.items():
        place, _, entry = name.partition("/")
        if not place.isdecimal() or int(place) >= len(parts):
            raise ModelFileError(f"`{file}` must hold weights of {len(parts)} nets, got {name!r}.")
        own = entry.startswith("trunk.nets.")  # may hold infinities on purpose
        if bool(tensor.isnan().any() if own else ~tensor.isfinite().all()):
            raise ModelFileError(f"`{file}` must hold finite weights, got others in {name!r}.")
        parts[int(place)][entry] = tensor
    return [_build(one, part, file, trunk) for one, part in zip(told, parts, strict=True)]


def _build(told: dict[str, Any], weights: Weights, file: str, trunk: Any) -> DialNet:
    members, groups, runs = (_count(told[name]) for name in ("members", "groups", "runs"))
    shared = bool(told["shared"])
    nets = members * (1 if shared else groups)
    if members % runs:
        raise ModelFileError(f"`{file}` must hold as many members for each run, got others.")
    made, own = _trunk(told, weights, nets, trunk)
    with torch.device("meta"):  # no memory, no numbers: the weights are put in below
        generator = torch.Generator("cpu")
        n_in, *hidden = _widths(weights, "head.layers")
        head = Head(nets, n_in, hidden[0] if len(hidden) == 2 else 0, generator)
        layers = made if own else MLPTrunk(nets, **made, generator=generator)
        film = None
        if told["film"]:
            widths = [*getattr(layers, "active_widths", []), *head.active_widths]
            _, *units = _widths(weights, "film.hidden")
            film = Film(nets, widths, generator, hidden=units[0], depth=len(units), identity=False)
        net = DialNet(layers, head, members=members, groups=groups, shared=shared, film=film)
    net.kept = list(range(runs))
    _put(net, weights, file, own=own)
    return net.eval()


def _trunk(told: dict[str, Any], weights: Weights, nets: int, trunk: Any) -> tuple[Any, bool]:
    """A stack of modules, or the arguments of the library's layers; and whether it is a stack."""
    words = told["trunk"]
    if words["kind"] == "layers":
        widths = _widths(weights, "trunk.layers")
        dropout = float(words["dropout"])
        made = {"widths": widths, "norm": bool(words["norm"]), "dropout": dropout}
        return {**made, "bare": bool(words["bare"])}, False
    if words["kind"] == "library":
        return ModuleStack.of(library_trunk(words), nets), True
    if trunk is None:
        raise InvalidInputError(
            f"`trunk` must be given: the model's trunk is a module of your own, {words['type']}, "
            "and files bring no code; load(..., trunk=...) takes what Network(trunk=...) took."
        )
    return ModuleStack.of(trunk, nets), True


def _put(net: DialNet, weights: Weights, file: str, *, own: bool) -> None:
    """Take the weights in; all of them, and nothing else."""
    expected = net.state_dict()
    names = sorted(set(expected) ^ set(weights))
    wrong = [
        name
        for name in expected
        if name in weights
        and (
            expected[name].shape != weights[name].shape
            or expected[name].is_floating_point() != weights[name].is_floating_point()
            or (not expected[name].is_meta and expected[name].dtype != weights[name].dtype)
        )
    ]
    if names or wrong:
        text = f"`{file}` must hold the weights of this net, got others ({(names + wrong)[0]!r})"
        raise ModelFileError(text + (": is `trunk` the module of the model?" if own else "."))
    for name, part in net.named_children():
        inner = {k.removeprefix(name + "."): v for k, v in weights.items() if k.startswith(name)}
        part.load_state_dict(inner, assign=not (own and name == "trunk"))


def _widths(weights: Weights, prefix: str) -> list[int]:
    """Inputs, then the width of each layer of a stack."""
    count = sum(name.startswith(prefix + ".") and name.endswith(".weight") for name in weights)
    shapes = [weights[f"{prefix}.{i}.weight"].shape for i in range(count)]
    return [shapes[0][1], *(shape[2] for shape in shapes)]


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is no number of nets")
    return value
