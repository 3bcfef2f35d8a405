"""TARTE's transformer: its weights, and the readout of rows."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fairdial.errors import InvalidInputError

Transformer = nn.Module
BASE = "tarte_base."  # the transformer's part of the pretrained weights
BLOCK = re.compile(r"transformer_encoder\.layers\.(\d+)\.")


@cache
def tarte_model() -> ModuleType:
    """Return tarte-ai's module of networks, which needs only torch.

    ``import tarte_ai`` would also import gradient boosting and other foundation models, which takes
    seconds, creates folders in the user's home and emits warnings.
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
) -> Transformer:
    """Return the transformer up to a layer, with the weights of a file.

    Every weight must be in the file, in the right shape; otherwise it would stay random.

    Parameters
    ----------
    path : Path
        Pretrained weights: a state dict written by ``torch.save``.
    sizes : dict
        ``dim_input``, ``dim_transformer``, ``dim_feedforward``, ``num_heads``; others are ignored.
    layer : int
        The last layer, counted from 0.
    device : torch.device
        Where it runs.
    """
    make = tarte_model().TARTE_Base
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        own = {
            name.removeprefix(BASE): weights
            for name, weights in state.items()
            if name.startswith(BASE) and _depth(name) <= layer
        }
        with torch.device("meta"):  # draw no random weights
            base = make(**sizes | {"num_layers_transformer": layer + 1}, dropout=0.0)
        base.load_state_dict(own, assign=True)
    except Exception as error:  # whatever torch raises for a file that isn't its own
        raise InvalidInputError(
            "weights",
            "be TARTE's pretrained weights, of the sizes in `config`",
            given=f"{str(path)!r} ({error})",
        ) from error
    transformer: Transformer = base.float().requires_grad_(False).eval().to(device)
    return transformer


def _depth(name: str) -> int:
    found = BLOCK.search(name)
    return int(found.group(1)) if found else 0


@torch.no_grad()
def readouts(
    transformer: Transformer,
    cells: NDArray[np.float32],
    names: NDArray[np.float32],
    missing: NDArray[np.bool_],
) -> NDArray[np.float32]:
    """Return the normalized readout token of each row, (b, d).

    Parameters
    ----------
    transformer : Module
        The transformer, from :func:`load_transformer`.
    cells : array of shape (b, 1 + c, dim_input)
        Values.
    names : array of shape (1 + c, dim_input)
        Columns.
    missing : array of shape (b, 1 + c)
        Tokens that are masked.
    """
    device = next(transformer.parameters()).device
    columns = torch.from_numpy(names).to(device).expand(len(cells), *names.shape)
    tokens = transformer(
        torch.from_numpy(cells).to(device), columns, torch.from_numpy(missing).to(device)
    )
    readout = tokens[:, 0]
    normalized: NDArray[np.float32] = (
        nn.functional.layer_norm(readout, readout.shape[-1:]).cpu().numpy()
    )
    return normalized
