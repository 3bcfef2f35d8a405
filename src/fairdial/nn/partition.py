"""FairBiNN's partition: which parameters descend the gap; all others descend the loss."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from torch import nn

from fairdial.errors import InvalidInputError
from fairdial.nn.nets import DialNet, MLPTrunk, ModuleStack

LAYERS = 2  # of the trunk in the fairness part, if it has more


Choice = int | str | Sequence[str] | None


def fairness_names(net: DialNet, choice: Choice = None) -> list[str]:
    """Return the names of the parameters in the fairness part.

    Parameters
    ----------
    net : DialNet
        The net; its head always belongs to the accuracy part.
    choice : int, str or list of str, optional
        For the library's layers: how many of the trunk's last ones; by default two, but not the
        first. For the user's own trunk: the name of one or more parts of the module, such as
        "layer4"; by default its last part with parameters, or all of it if it has no parts.

    Raises
    ------
    InvalidInputError
        The choice names nothing that is trained.
    """
    if isinstance(net.trunk, MLPTrunk):
        chosen = _last_layers(net.trunk, choice)
    else:
        assert isinstance(net.trunk, ModuleStack)
        chosen = _named_parts(net.trunk, choice)
    found = [
        name
        for name, p in net.named_parameters()
        if p.requires_grad and any(name.startswith(prefix) for prefix in chosen)
    ]
    if not found:
        raise InvalidInputError("fairness", "name layers that are trained", given=repr(choice))
    return found


def _last_layers(trunk: MLPTrunk, choice: Choice) -> list[str]:
    """Return prefixes of the last layers, with their normalization."""
    n = len(trunk.layers)
    count = min(LAYERS, max(n - 1, 1)) if choice is None else choice
    if not isinstance(count, Integral) or not 1 <= int(count) <= n:
        raise InvalidInputError(
            "fairness", f"be a number of the trunk's layers, 1 to {n}", given=repr(choice)
        )
    places = range(n - int(count), n)
    return [f"trunk.{part}.{i}." for i in places for part in ("layers", "norms")]


def _named_parts(trunk: ModuleStack, choice: Choice) -> list[str]:
    module = trunk.nets[0]
    parts = [name for name, part in module.named_children() if _is_trained(part)]
    if choice is None:
        names: list[Any] = parts[-1:] or [""]  # a trunk without parts: all of it
    else:
        names = list(choice) if isinstance(choice, (list, tuple)) else [choice]
    known = [name for name, _ in module.named_modules() if name or not parts]
    if not names or not all(isinstance(name, str) and name in known for name in names):
        raise InvalidInputError(
            "fairness", f"name parts of the trunk, such as {parts or known}", given=repr(choice)
        )
    prefixes = [f"{name}." if name else "" for name in names]
    return [f"trunk.nets.{i}.{prefix}" for i in range(len(trunk.nets)) for prefix in prefixes]


def _is_trained(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())
