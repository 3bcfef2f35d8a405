"""Records: one file a trial, written whole or not at all, found again by what was run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

FORMAT = 1
LONGEST = 60  # characters of a method's name in a file name
ABANDONED = 3600.0  # seconds after which a half-written file has no writer any more
UNRELATED = (
    "bench/",
    "serve/",
    "cli/",
    "__main__.py",
    "plotting.py",
    "progress.py",
    "persistence/",
    "methods/saving.py",
    "methods/loading.py",
    "methods/pieces.py",
    "methods/card.py",
    "nn/saving.py",
)
RELATED = ("bench/trial.py", "bench/sources.py", "bench/estimators.py", "bench/variants.py")


@cache
def code_version() -> str:
    """A hash of all code that a trial's result can depend on."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(UNRELATED) and name not in RELATED:
            continue
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def config_key(config: dict[str, Any]) -> str:
    """A hash of what was to be run."""
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """A folder of records.

    Parameters
    ----------
    folder : path
        Made when the first record is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, config: dict[str, Any], code: str | None = None) -> Path:
        """Where the record of a trial lies."""
        words = (config["kind"], config["dataset"], config["method"]["name"][:LONGEST])
        name = re.sub(r"[^a-z0-9]+", "-", f"{' '.join(words)} {config['seed']}".lower()).strip("-")
        return self.folder / f"{name}-{config_key(config)}-{code or code_version()}.json"

    def write(self, record: dict[str, Any]) -> None:
        """Keep a record: to a temporary name first, then renamed.

        A record that can't be written as JSON is kept as a failed one; a failed one never takes the
        place of one that is whole.
        """
        try:
            body = json.dumps(record, sort_keys=True, allow_nan=False)
        except ValueError as error:
            failed = {k: record[k] for k in ("config", "environment", "code", "warnings")}
            self.write(failed | {"error": f"a figure is not finite: {error}"})
            return
        if "error" in record and self.find(record["config"]) is not None:
            return
        code = record["code"]
        head = {"format": FORMAT, "code": code, "sha256": _hash(body)}
        path = self.path(record["config"], code)
        self.folder.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(f".{uuid.uuid4().hex}.part")
        with half.open("w", encoding="utf-8") as file:
            file.write(json.dumps(head) + "\n" + body + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)

    def read(self, path: Path) -> dict[str, Any] | None:
        """A record, or None where the file isn't whole."""
        try:
            head_line, body = path.read_text("utf-8").rstrip("\n").split("\n")
            head = json.loads(head_line)
            if head["format"] != FORMAT or head["sha256"] != _hash(body):
                return None
            return {"code": head["code"]} | json.loads(body)  # type: ignore[no-any-return]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def find(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """The finished record of a trial by this code, if there is one that is whole."""
        record = self.read(self.path(config))
        return record if record is not None and "error" not in record else None

    def of_any_code(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """The finished record of a trial: by this code, else the newest by another."""
        whole = (record for record in self._newest_first(config) if "error" not in record)
        return self.find(config) or next(whole, None)

    def _newest_first(self, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The records of a trial by any code."""
        pattern = self.path(config, "*").name
        paths = sorted(self.folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        for path in reversed(paths):
            record = self.read(path)
            if record is not None:
                yield record

    def failed(self, config: dict[str, Any]) -> dict[str, Any] | None:
        """The record of a trial that failed, by this code."""
        record = self.read(self.path(config))
        return record if record is not None and "error" in record else None

    def records(self, configs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The records that count: by this code, be it a failure; else the newest by another.

        Of records by other code, a failure counts only where none is whole.
        """
        found = (
            self.find(one)
            or self.failed(one)
            or self.of_any_code(one)
            or next(self._newest_first(one), None)
            for one in configs
        )
        return [record for record in found if record is not None]

    def failure(self, config: dict[str, Any]) -> str | None:
        """What went wrong in a trial, if something did."""
        record = self.failed(config)
        return None if record is None else str(record["error"])

    def leftovers(self) -> Iterator[Path]:
        """Files of writers that were killed, not of those that may be writing now."""
        for path in self.folder.glob("*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    yield path


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
