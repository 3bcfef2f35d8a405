"""Fuzzing guided by coverage: ``python scripts/fuzz.py folder|table|request --seconds 60``.

atheris changes bytes, keeps what reaches new lines of the library, and changes that again. Whatever
comes out is used, or refused with one of the project's errors; anything else ends the run, and the
input is written to ``test-artifacts/``. Run it with ``--input FILE`` to repeat a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit("Fuzzing guided by coverage needs atheris: pip install atheris")

with atheris.instrument_imports(include=["fairdial"]):
    import fairdial
    import fairdial.io.load
    from fairdial.cli import main as main_command
    from fairdial.serve.deciding import Decider
    from fairdial.serve.observations import Observations
    from fairdial.serve.requests import DialRequest, ObserveRequest, PredictRequest, RefusedError
    from fairdial.serve.requests import parse as parse_request
    from fairdial.serve.service import Service

import numpy as np
import pandas as pd
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from fairdial import FairBayes, FairdialError

Target = Callable[[bytes], None]
ROOT = Path(__file__).resolve().parents[1]
LONGEST = 1 << 15  # bytes of an input
N_ROWS = 300


def people() -> pd.DataFrame:
    """A table of numbers and text, with a group and a label."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N_ROWS),
            "income": rng.normal(30, 9, N_ROWS).round(2),
            "sex": rng.choice(["F", "M"], N_ROWS),
        }
    )
    score = (table["income"] - 30) / 9 + (table["sex"] == "M")
    table["repaid"] = np.where(rng.random(N_ROWS) < 1 / (1 + np.exp(-score)), "yes", "no")
    return table


def saved(place: Path) -> Path:
    """Train a model, and save it."""
    table = people()
    model = FairBayes(LogisticRegression(), min_count=10, random_state=0, sensitive_column="sex")
    model.fit(table[["age", "income", "sex"]], table["repaid"])
    model.save(place / "model")
    return place / "model"


def folders(place: Path) -> tuple[Target, list[bytes]]:
    """Return a target that loads folders with one file replaced, their hashes made right."""
    folder, rows = saved(place), people()[["age", "income", "sex"]].head(5)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    manifest = json.loads(files["manifest.json"])
    names = [name for name in sorted(files) if name in manifest["files"]]
    names.append("manifest.json")

    def write(name: str, body: bytes) -> None:
        data = json.loads(files["manifest.json"])
        if name == "manifest.json":
            text = body
        else:
            data["files"][name] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
            (folder / name).write_bytes(body)
            text = json.dumps(data).encode()
        (folder / "manifest.json").write_bytes(text)
        digest = hashlib.sha256(text).hexdigest()
        (folder / "manifest.sha256").write_text(f"{digest}  manifest.json\n")

    def load(data: bytes) -> None:
        if not data:
            return
        name = names[data[0] % len(names)]
        write(name, data[1:])
        try:
            found = fairdial.load(folder).predict(rows)
            assert len(found) == len(rows)
        except FairdialError:
            pass
        finally:
            for each in (name, "manifest.json", "manifest.sha256"):
                (folder / each).write_bytes(files[each])

    return load, [bytes([i]) + files[name] for i, name in enumerate(names)]


def tables(place: Path) -> tuple[Target, list[bytes]]:
    """Return a target that decides on the rows of CSV files by the command line."""
    folder, path, out = saved(place), place / "rows.csv", place / "out.csv"
    command = ["predict", str(folder), str(path), "--out", str(out), "--overwrite"]

    def decide(data: bytes) -> None:
        path.write_bytes(data)
        found = CliRunner().invoke(main_command, command)
        assert isinstance(found.exception, SystemExit | None), repr(found.exception)
        assert found.exit_code in (0, 1, 2), found.output
        assert "--debug shows the traceback" not in found.output, found.output

    good = people()[["age", "income", "sex"]].head(8)
    quoted = good.to_csv(index=False, quoting=csv.QUOTE_ALL)
    return decide, [good.to_csv(index=False).encode(), quoted.encode("utf-8-sig")]


def requests(place: Path) -> tuple[Target, list[bytes]]:
    """Return a target that answers requests for decisions, and reads those of other kinds."""
    model = fairdial.load(saved(place))
    decider = Decider(model)
    counts = Observations(place / "observed", model=model.model_hash_, n_groups=2)
    service = Service(
        decider, model=model.model_hash_, log=None, observations=counts, tolerance=0.1
    )
    dial = service.current_dial()

    def answer(data: bytes) -> None:
        for kind in (DialRequest, ObserveRequest):
            with contextlib.suppress(RefusedError):
                parse_request(kind, data, once=True)
        try:
            asked = parse_request(PredictRequest, data)
            found = json.loads(service.predict(asked, dial))
        except (RefusedError, FairdialError):
            return
        assert len(found["rows"]) == len(asked.rows)

    row = {"features": {"age": 30, "income": 31.5, "sex": "F"}, "tolerance": 0.2}
    good = (
        {"rows": [row], "tolerance": 0.1},
        {"tolerance": 0.2, "reason": "policy", "by": "Ann", "confidence": 0.95},
        {"groups": ["F", "M"], "scores": [0.5, -1e9], "labels": [0, 1]},
    )
    return answer, [json.dumps(each).encode() for each in good]


TARGETS = {"folder": folders, "table": tables, "request": requests}


def main() -> None:
    """Fuzz one target until its time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 2**31))
    parser.add_argument("--input", type=Path, help="run this input only")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    artifacts = Path(os.environ.get("FAIRDIAL_ARTIFACTS", ROOT / "test-artifacts"))
    artifacts.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="fairdial-fuzz-"))
    target, seeds = TARGETS[given.target](place)
    corpus = place / "corpus"
    corpus.mkdir()
    for i, body in enumerate(seeds):
        (corpus / str(i)).write_bytes(body)
    options = [
        f"-max_total_time={given.seconds}",
        f"-seed={given.seed}",
        f"-max_len={max(LONGEST, *map(len, seeds))}",
        f"-artifact_prefix={artifacts}/{given.target}-",
        "-rss_limit_mb=4096",
        "-timeout=60",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    what = [str(given.input)] if given.input else [str(corpus)]
    atheris.Setup([sys.argv[0], *options, *what], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
