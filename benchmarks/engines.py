"""Decide, calibrate and evaluate on seven engines, beside scans of the same columns.

    python benchmarks/engines.py [--rows 1e7] [--engines pyarrow dask] [--folder /tmp] [--quick]

Rows of a Gaussian law with three features, a group and a label are written to Parquet files in a
temporary folder. Each engine runs in a fresh process with two workers of its own. Times are
processor time of that process and all its descendants, without starting the engine: the machine may
be busy. "Scan" hands the columns that calibration reads to Python batch by batch, and counts rows.
Memory is the peak of the largest process that works on rows. Decisions are compared with one
process to the last row, thresholds to the last bit.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from common import at_most, machine, show_goals, table
from sklearn.linear_model import LogisticRegression

import fairdial
from fairdial import FairBayes
from fairdial.large import apply, calibrate, decide, evaluate

TOLERANCES = np.linspace(0.02, 0.20, 10).tolist()
TOLERANCE = TOLERANCES[2]  # of decisions: one with an exact answer
SCORED = ["logit", "sex", "label"]
FILES = 20
ENGINES = ("pyarrow", "polars", "DuckDB", "dask", "Spark", "Ray")
PACKAGES = ("fairdial", "numpy", "pyarrow", "polars", "duckdb", "dask", "pyspark", "ray")
MOST_TIMES, MOST_MEMORY, MOST_SENT = 2.0, 1e9, 0.01
TICKS = os.sysconf("SC_CLK_TCK")


# ---- processes -------------------------------------------------------------------------------


def family() -> dict[int, list[str]]:
    """Return this process and its descendants, with the fields of their statistics."""
    found: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            found[int(folder.name)] = text.rpartition(")")[2].split()
    own, kept = {os.getpid()}, 0
    while len(own) > kept:
        kept = len(own)
        own |= {pid for pid, fields in found.items() if int(fields[1]) in own}
    return {pid: found[pid] for pid in own if pid in found}


def cpu_seconds() -> float:
    """Return the processor time of this process and its descendants, dead ones included."""
    return sum(sum(map(int, fields[11:15])) for fields in family().values()) / TICKS


class Watch:
    """Watches the peak memory of each process of the family that runs Python."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for pid in family():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                lines = dict(line.partition(":")[::2] for line in status.splitlines())
                if "VmHWM" in lines and ("python" in lines["Name"] or "ray::" in lines["Name"]):
                    self.peaks[pid] = int(lines["VmHWM"].split()[0]) * 1024

    def stop(self) -> int:
        """Return the peak of the largest process besides this one, or of this one."""
        self._stop.set()
        self._thread.join()
        others = [peak for pid, peak in self.peaks.items() if pid != os.getpid()]
        return max(others, default=self.peaks.get(os.getpid(), 0))


# ---- engines ---------------------------------------------------------------------------------

Open = Callable[[Path], Any]
Scan = Callable[[Any], int]
Write = Callable[[Any, Path], object]


@contextmanager
def start(engine: str) -> Iterator[tuple[Open, Scan, Write]]:
    """Start an engine; yield what opens a folder, scans columns of it, and writes a table."""
    if engine == "pyarrow":
        yield (
            ds.dataset,
            lambda rows: sum(map(len, rows.to_batches(columns=SCORED))),
            lambda rows, path: pq.write_table(rows.read_all(), path / "0.parquet"),
        )
    elif engine == "polars":
        import polars

        yield (
            lambda folder: polars.scan_parquet(folder / "*.parquet"),
            lambda rows: sum(map(len, rows.select(SCORED).collect_batches())),
            lambda rows, path: rows.sink_parquet(path / "0.parquet"),
        )
    elif engine == "DuckDB":
        import duckdb

        yield (
            lambda folder: duckdb.read_parquet(f"{folder}/*.parquet"),
            lambda rows: sum(map(len, rows.project(",".join(SCORED)).to_arrow_reader(1 << 17))),
            lambda rows, path: pq.write_table(rows.read_all(), path / "0.parquet"),
        )
    elif engine == "dask":
        import dask.dataframe as dd
        from dask.distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            yield (
                dd.read_parquet,
                lambda rows: int(rows[SCORED].map_partitions(len).sum().compute()),
                lambda rows, path: rows.to_parquet(path, write_index=False),
            )
    elif engine == "Spark":
        from pyspark.sql import SparkSession

        def count(batches: Any) -> Any:
            yield pa.RecordBatch.from_pydict({"n": [sum(map(len, batches))]})

        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield (
            lambda folder: session.read.parquet(str(folder)),
            lambda rows: (
                rows.select(SCORED).mapInArrow(count, "n long").toArrow()["n"].to_numpy().sum()
            ),
            lambda rows, path: rows.write.mode("overwrite").parquet(str(path)),
        )
        session.stop()
    else:
        import ray

        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=1 << 30,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield (
            lambda folder: ray.data.read_parquet(str(folder)),
            lambda rows: (
                rows.select_columns(SCORED)
                .map_batches(lambda t: pa.table({"n": [len(t)]}), batch_format="pyarrow")
                .sum("n")
            ),
            lambda rows, path: rows.write_parquet(str(path)),
        )
        ray.shutdown()


def run(engine: str, folder: Path) -> dict[str, Any]:
    """Run the tasks of an engine in this process, and return times, answers and memory."""
    found: dict[str, Any] = {"engine": engine}
    sent = []
    read = apply.WorkersPass.read

    def counted(self: Any, flags: Any) -> Any:
        for batch in read(self, flags):
            sent.append(len(batch[0]))
            yield batch

    apply.WorkersPass.read = counted  # type: ignore[method-assign]
    model = fairdial.load(folder / "model")
    out = folder / f"decided-{engine}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with start(engine) as (open_, scan, write):
        rows, scored = open_(folder / "rows"), open_(folder / "scored")
        scan(scored)  # starts workers
        watch = Watch()

        def timed(name: str, call: Callable[[], Any]) -> Any:
            before, began = cpu_seconds(), time.perf_counter()
            result = call()
            found[name], found[f"{name} wall"] = cpu_seconds() - before, time.perf_counter() - began
            return result

        found["rows"] = int(timed("scan", lambda: scan(scored)))
        given = {"label": "label", "score": "logit"}
        timed("one pass", lambda: calibrate(scored, model, **given))
        timed("exact", lambda: calibrate(scored, model, tolerances=TOLERANCES, **given))
        found["thresholds"] = model.frontier_.at(TOLERANCES).thresholds.tolist()
        found["sent"] = sum(sent)
        timed("decide", lambda: write(decide(rows, model, tolerance=TOLERANCE), out))
        found["gap"] = timed(
            "evaluate", lambda: evaluate(rows, model, label="label", tolerance=TOLERANCE).gap
        )
        found["memory"] = watch.stop()
    return found


# ---- rows ------------------------------------------------------------------------------------


def write_rows(folder: Path, n_rows: int) -> None:
    """Write rows, a model, and the rows with the model's scores."""
    rng = np.random.default_rng(0)
    model = None
    for name in ("rows", "scored"):
        (folder / name).mkdir()
    for part, places in enumerate(np.array_split(np.arange(n_rows), FILES)):
        n = len(places)
        sex = rng.random(n) < 0.4
        X = rng.normal(size=(n, 3)) + 0.5 * ~sex[:, None]
        y = X.sum(axis=1) - 0.75 + rng.logistic(size=n) > 0
        rows = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
            id=places, sex=np.where(sex, "F", "M"), label=y.astype(int)
        )
        if model is None:
            model = FairBayes(LogisticRegression(), sensitive_column="sex", random_state=0)
            train = rows[:20_000]
            model.fit(train[["a", "b", "c", "sex"]], train["label"])
            model.save(folder / "model")
            model = fairdial.load(folder / "model")
        rows.to_parquet(folder / "rows" / f"{part:02}.parquet")
        scores = model.logits(rows[["a", "b", "c", "sex"]])
        scored = rows[["id", "sex", "label"]].assign(logit=scores)
        scored.to_parquet(folder / "scored" / f"{part:02}.parquet")


def check(folder: Path, found: list[dict[str, Any]]) -> None:
    """Compare decisions and thresholds with one process that has all rows in memory."""
    rows = pd.concat(pd.read_parquet(file) for file in sorted((folder / "rows").iterdir()))
    X, model = rows[["a", "b", "c", "sex"]], fairdial.load(folder / "model")
    model.calibrate(X, rows["label"])
    thresholds = model.frontier_.at(TOLERANCES).thresholds
    expected = model.predict(X, tolerance=TOLERANCE)
    for line in found:
        decided = ds.dataset(folder / f"decided-{line['engine']}", exclude_invalid_files=True)
        table = decided.to_table(columns=["id", "decision"])
        ours = np.full(len(rows), -1)
        ours[table["id"].to_numpy()] = table["decision"].to_numpy()
        same = len(table) == len(rows) and (ours == expected).all()
        line["equal"] = bool(same) and bool((np.array(line["thresholds"]) == thresholds).all())


def command_line(folder: Path) -> dict[str, Any]:
    """Return processor time and peak memory of ``fairdial predict FOLDER``."""
    out = folder / "out.parquet"
    command = [sys.executable, "-m", "fairdial", "predict", str(folder / "model")]
    command += [str(folder / "rows"), "--id", "id", "--tolerance", "0.05", "--out", str(out)]
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stderr=subprocess.DEVNULL); u = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(u.ru_utime + u.ru_stime, u.ru_maxrss * 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=True
    )
    seconds, memory = map(float, done.stdout.split())
    return {"seconds": seconds, "memory": memory}


def main() -> None:
    """Run everything, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.task:
        warnings.simplefilter("ignore")
        result = run(given.task, given.folder)
        print("RESULT " + json.dumps(result))
        return
    n_rows = 100_000 if given.quick else int(given.rows)
    engines = ["pyarrow"] if given.quick else given.engines
    print(machine(PACKAGES))
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        write_rows(folder, n_rows)
        found = []
        for engine in engines:
            command = [sys.executable, __file__, "--task", engine, "--folder", place]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{engine} failed:\n{done.stderr[:3000]}\n...\n{done.stderr[-1000:]}")
            (line,) = (s for s in done.stdout.splitlines() if s.startswith("RESULT "))
            found.append(json.loads(line.removeprefix("RESULT ")))
        check(folder, found)
        streamed = command_line(folder)
    print(
        f"\n{n_rows:,} rows in {FILES} files; processor seconds. One pass, exact and scan read a "
        "stored score; decide and evaluate score the rows.\n"
    )
    lines = [
        [
            line["engine"],
            *(f"{line[name]:.2f}" for name in ("scan", "one pass", "exact", "decide", "evaluate")),
            f"{line['one pass'] / line['scan']:.2f}",
            f"{line['sent']:,}",
            f"{line['memory'] / 1e6:,.0f}",
            "yes" if line["equal"] else "NO",
        ]
        for line in found
    ]
    head = ["engine", "scan", "one pass", "exact", "decide and write", "evaluate"]
    print(table([*head, "one pass / scan", "scores sent", "peak MB per worker", "equal"], lines))
    seconds, memory = streamed["seconds"], streamed["memory"]
    print(
        f"\n`fairdial predict FOLDER`: {seconds:.1f} s of processor time, "
        f"{1e6 * seconds / n_rows:.2f} us per row, peak {memory / 1e6:,.0f} MB."
    )
    if given.quick:
        return
    goals = [at_most("fairdial predict FOLDER, bytes", memory / 1e9, MOST_MEMORY / 1e9, " GB")]
    for line in found:
        name = line["engine"]
        goals.append(
            at_most(f"{name}: one pass / scan", line["one pass"] / line["scan"], MOST_TIMES)
        )
        goals.append(
            at_most(
                f"{name}: share of rows sent", 100 * line["sent"] / n_rows, 100 * MOST_SENT, "%"
            )
        )
    show_goals(goals)
    if not all(line["equal"] for line in found):
        sys.exit("Some engine's answers differ from those of one process.")


if __name__ == "__main__":
    main()
