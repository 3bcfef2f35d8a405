"""The file that an interrupted training resumes from: safetensors, followed by their SHA-256."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fairdial._files import write_file
from fairdial.errors import CheckpointError

FILE = "checkpoint.bin"
FORMAT = 3
DIGEST = hashlib.sha256().digest_size  # bytes at the end of the file

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
        body = save(tensors, metadata={"fairdial": json.dumps(header)})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.file, body + hashlib.sha256(body).digest())

    def read(self) -> tuple[Pieces, dict[str, Any]]:
        """Return the tensors and the progress.

        Raises
        ------
        CheckpointError
            The file can't be read, was damaged, or belongs to another run.
        """
        try:
            stored = self.file.read_bytes()
            body, digest = stored[:-DIGEST], stored[-DIGEST:]
            if hashlib.sha256(body).digest() != digest:
                raise ValueError("it was damaged or cut off")
            tensors, header = load(body), _read_header(body)
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


def _read_header(body: bytes) -> dict[str, Any]:
    """Return the header, which is JSON within the metadata that safetensors begin with."""
    end = 8 + int.from_bytes(body[:8], "little")
    found: dict[str, Any] = json.loads(json.loads(body[8:end])["__metadata__"]["fairdial"])
    return found
