"""The libraries that studies compare with: each runs in an environment of its own.

A peer gets the rows of :mod:`fairdial.bench.peer_worker` in a file, and fits a rule for each
tolerance. Test rows follow when that is over, without labels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fairdial._arrays import Codes, Mask
from fairdial.errors import FairdialError, InvalidInputError

PYTHON = "FAIRDIAL_PEERS"  # environment variable: the interpreter that has the libraries
DEFAULT = Path(".venv-peers") / "bin" / "python"  # as `make peers` creates it
WORKER = Path(__file__).with_name("peer_worker.py")
ERROR_RATES = ("equal_opportunity", "equalized_odds")
ALL = ("demographic_parity", *ERROR_RATES)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Peer:
    """What a library can do.

    Attributes
    ----------
    criteria : tuple of str
        The criteria that it limits.
    trains : bool
        Whether it trains classifiers, rather than taking scores.
    blind : bool
        Whether its rules can do without the groups.
    """

    criteria: tuple[str, ...] = ALL
    trains: bool = False
    blind: bool = False


PEERS = {
    "fairlearn": Peer(),
    "error-parity": Peer(),
    "oxonfair": Peer(),
    "reject option": Peer(),
    "linearpost": Peer(blind=True),
    "reduction": Peer(trains=True, blind=True),
    "fairgbm": Peer(ERROR_RATES, trains=True, blind=True),
}


def find_python() -> Path:
    """Return the interpreter of the peers' environment."""
    given = os.environ.get(PYTHON)
    path = Path(given) if given else DEFAULT
    if not path.is_file() and shutil.which(str(path)) is None:
        raise InvalidInputError(
            PYTHON,
            "name the Python interpreter of an environment with the peers",
            given=given or f"no {DEFAULT} in this folder",
            hint="`make peers` creates one.",
        )
    return path.absolute()


class PeerProcess:
    """A peer in its own process, as a context manager.

    Parameters
    ----------
    name : str
        One of ``PEERS``.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        python = find_python()
        self._folder = tempfile.TemporaryDirectory(prefix="fairdial-peer-")
        outside = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        variables = {k: v for k, v in os.environ.items() if k not in outside} | ONE_THREAD
        self._log = Path(self._folder.name, "log.txt").open("wb")
        self._process = subprocess.Popen(
            [str(python), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=variables,
            cwd=self._folder.name,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def fit(
        self, rows: dict[str, NDArray[Any]], criterion: str, tolerances: Sequence[float]
    ) -> list[float]:
        """Fit a rule for each tolerance; return the processor seconds of each."""
        answer = self._ask(
            rows, peer=self.name, criterion=criterion, tolerances=[float(t) for t in tolerances]
        )
        return [float(value) for value in answer["seconds"]]

    def decide(self, rows: dict[str, NDArray[Any]]) -> Mask:
        """Return the decisions of all rules on rows, (T, n)."""
        out = Path(self._folder.name) / "out.npy"
        self._ask(rows, out=str(out))
        found: Mask = np.load(out)
        return found

    def _ask(self, rows: dict[str, NDArray[Any]], **task: Any) -> dict[str, Any]:
        file = Path(self._folder.name) / "rows.npz"
        np.savez(file, **rows)  # type: ignore[arg-type]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"rows": str(file), **task}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            log = Path(self._log.name).read_text("utf-8", "replace").strip().splitlines()
            raise PeerError(f"{self.name}: {log[-1] if log else 'its process ended'}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class PeerError(FairdialError):
    """A peer failed."""


def joint_of(p: NDArray[np.float64], codes: Codes, n_groups: int) -> NDArray[np.float64]:
    """Return the probability of each group and label, (n, K, 2), of rows whose group is known."""
    both = np.column_stack((1.0 - p, p))
    return np.asarray(np.eye(n_groups)[codes][:, :, None] * both[:, None, :])
