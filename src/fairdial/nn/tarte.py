"""TARTE's transformer: weights from a file, and the readout of rows."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fairdial.errors import InvalidInputError

BASE = "tarte_base."  # the transformer's part of the pretrained weights
BLOCK = re.compile(r"transformer_encoder\.layers\.(\d+)\.")


@cache
def tarte_model() -> ModuleType:
    """tarte-ai's module of networks, which needs torch alone.

    ``import tarte_ai`` would import gradient boosting and other foundation models besides: some
    seconds, folders in the user's home, warnings.
    """
    package = importlib.util.find_spec("tarte_ai")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'tarte_ai'", name="tarte_ai")
    path = Path(package.submodule_search_locations[0]) / "tarte_model.py"
    spec = importlib.util.spec_from_file_location("tarte_model", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ModuleNotFoundError(f"tarte_ai has no {path.name}", name="tarte_ai.tarte_model")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_transformer(
    path: Path, sizes: dict[str, int], layer: int, device: torch.device
) -> nn.Module:
    """The transformer up to a layer, with the weights of a file.

    Every weight must be there in the right shape: one that is not would be left random.

    Parameters
    ----------
    path : Path
        Pretrained weights: a state dict that ``torch.save`` wrote.
    sizes : dict
        ``dim_input``, ``dim_transformer``, ``dim_feedforward``, ``num_heads``; more are ignored.
    layer : int
        The last layer, counted from 0.
    device : torch.device
        Where it is to run.
    """
    make = tarte_model().TARTE_Base
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        own = {
            name.removeprefix(BASE): weights
            for name, weights in state.items()
            if name.startswith(BASE) and _depth(name) <= layer
        }
        with torch.device("meta"):  # no random weights: nothing is drawn
            base = make(**sizes | {"num_layers_transformer": layer + 1}, dropout=0.0)
        base.load_state_dict(own, assign=True)
    except Exception as error:  # whatever torch raises for a file that isn't its own
        raise InvalidInputError(
            f"`weights` must be TARTE's pretrained weights, of the sizes in `config`, got "
            f"{str(path)!r} ({error})."
        ) from error
    return base.float().requires_grad_(False).eval().to(device)  # type: ignore[no-any-return]


def _depth(name: str) -> int:
    found = BLOCK.search(name)
    return int(found.group(1)) if found else 0


@torch.no_grad()
def readouts(
    transformer: nn.Module,
    cells: NDArray[np.float32],
    names: NDArray[np.float32],
    missing: NDArray[np.bool_],
) -> NDArray[Any]:
    """(b, d) the readout token of each row, normalised.

    Parameters
    ----------
    transformer : Module
        From :func:`load_transformer`.
    cells : array of shape (b, 1 + c, dim_input)
        Values.
    names : array of shape (1 + c, dim_input)
        Columns.
    missing : array of shape (b, 1 + c)
        Tokens that nothing looks at.
    """
    device = next(transformer.parameters()).device
    columns = torch.from_numpy(names).to(device).expand(len(cells), *names.shape)
    tokens = transformer(
        torch.from_numpy(cells).to(device), columns, torch.from_numpy(missing).to(device)
    )
    readout = tokens[:, 0]
    return nn.functional.layer_norm(readout, readout.shape[-1:]).cpu().numpy()
