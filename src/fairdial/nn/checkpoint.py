"""The file that an interrupted training resumes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairdial._files import replacing
from fairdial.errors import CheckpointError

FILE = "checkpoint.safetensors"
FORMAT = 2

Pieces = dict[str, dict[str, Tensor]]  # tensors by name, of net, step, batches, optimizers, ...


class Checkpoint:
    """A checkpoint in a folder.

    Parameters
    ----------
    folder : Path
        Where the file is; created when writing.
    key : str
        Identifies the run; a file with another key is refused.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.file, self.key = folder / FILE, key

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self.file.exists()

    def write(self, pieces: Pieces, progress: dict[str, Any]) -> None:
        """Replace the file as a whole."""
        tensors = {
            f"{piece}/{name}": tensor.detach().contiguous().clone()
            for piece, entries in pieces.items()
            for name, tensor in entries.items()
        }
        header = {"format": FORMAT, "key": self.key, **progress}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.file) as part:
            save_file(tensors, part.name, metadata={"fairdial": json.dumps(header)})

    def read(self) -> tuple[Pieces, dict[str, Any]]:
        """Return the tensors and the progress.

        Raises
        ------
        CheckpointError
            The file can't be read, or belongs to another run.
        """
        try:
            with safe_open(self.file, framework="pt") as stored:
                header = json.loads((stored.metadata() or {})["fairdial"])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise CheckpointError(
                f"`checkpoint` must hold what an earlier run wrote; {self.file.name} can't be read "
                f"({error}). Delete it to start over."
            ) from error
        if header["format"] != FORMAT or header["key"] != self.key:
            raise CheckpointError(
                "`checkpoint` belongs to another run (other rows, parameters or library version). "
                "Use another folder, or delete it to start over."
            )
        pieces: Pieces = {}
        for name, tensor in tensors.items():
            piece, _, entry = name.partition("/")
            pieces.setdefault(piece, {})[entry] = tensor
        return pieces, header
