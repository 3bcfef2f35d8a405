"""Time calibration from Parquet files, beside decoding the same columns alone.

    python benchmarks/parquet.py [--rows 1e8] [--folder /tmp] [--quick]

Files of scored rows (single-precision scores, dictionary-encoded groups, boolean labels) are
written to a temporary folder, about half a gigabyte for 1e8 rows, and removed at the end. Each row
of the table is a fresh process: minimum CPU time of all its threads over several runs, and peak
resident memory. At the end, another pass over the files recounts the gaps at the thresholds.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from common import TWO_GROUPS, cpu_time, draw, machine, table

from fairdial import Frontier, ScoreSummary, calibrate_parquet, summarize_parquet

TOLERANCES = np.linspace(0.02, 0.20, 10)
NAMES = ("first", "second")
COLUMNS = ["score", "group", "label"]
FILES = 10
ROW_GROUP = 10**6
BATCH = 1 << 18
BYTES_PER_ROW = 10  # on disk, at most
PACKAGES = ("fairdial", "numpy", "pyarrow", "duckdb")
MOST_TIMES, MOST_MEMORY = 3.0, 1e9


# ---- the files ------------------------------------------------------------------------------


def write_rows(folder: Path, rows: int, seed: int) -> int:
    """Write rows of the Gaussian law to several files, and return their size in bytes."""
    rng = np.random.default_rng(seed)
    names = pa.array(NAMES)
    kinds = {"score": pa.float32(), "group": pa.dictionary(pa.int32(), pa.string())}
    schema = pa.schema({**kinds, "label": pa.bool_()})
    for place, part in enumerate(np.array_split(np.arange(rows), FILES)):
        with pq.ParquetWriter(folder / f"part-{place}.parquet", schema) as file:
            for start in range(0, len(part), ROW_GROUP):
                drawn = draw(TWO_GROUPS, min(ROW_GROUP, len(part) - start), rng)
                columns = {
                    "score": drawn.logits.astype(np.float32),
                    "group": pa.DictionaryArray.from_arrays(drawn.groups.astype(np.int32), names),
                    "label": drawn.y.astype(np.bool_),
                }
                file.write_table(pa.table(columns, schema), row_group_size=ROW_GROUP)
    return sum(file.stat().st_size for file in folder.iterdir())


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield all rows, decoded."""
    for file in sorted(folder.glob("*.parquet")):
        yield from pq.ParquetFile(file).iter_batches(BATCH, columns=COLUMNS, use_threads=False)


# ---- what is timed --------------------------------------------------------------------------


def decode(folder: Path) -> int:
    """Decode the columns, and return the number of rows."""
    return sum(len(batch) for batch in batches(folder))


def one_pass(folder: Path) -> Frontier:
    """Return the frontier with thresholds at the edges of bins."""
    return calibrate_parquet(folder, label="label")


def exact(folder: Path) -> Frontier:
    """Return the frontier with ten exact answers."""
    return calibrate_parquet(folder, label="label", tolerances=TOLERANCES)


def query(folder: Path) -> Frontier:
    """Return the frontier from counts by DuckDB, on one thread."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        rows = f"read_parquet('{folder}/*.parquet')"
        counts = connection.sql(ScoreSummary.sql(rows, label="label")).df()
    return ScoreSummary.from_counts(counts).to_frontier()


TASKS: dict[str, Callable[[Path], Any]] = {
    "decoding alone": decode,
    "one pass": one_pass,
    "exact, two passes": exact,
    "the same counts by DuckDB": query,
}


def run_task(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Time a task in this process, and return its answers too."""
    answers: list[Any] = []
    timing = cpu_time(lambda: answers.append(TASKS[name](folder)), repeats)
    found: dict[str, Any] = {"seconds": timing.seconds, "memory": peak_memory()}
    if isinstance(answers[-1], Frontier):
        points = answers[-1].at(TOLERANCES)
        found["gaps"], found["thresholds"] = points.gap.tolist(), points.thresholds.tolist()
    return found


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage includes the parent process
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_a_fresh_process(name: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Run a task as :func:`run_task`, in a fresh process."""
    command = [sys.executable, __file__, "--task", name, "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--repeats", str(repeats)], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout))


# ---- the recount ----------------------------------------------------------------------------


def recount(folder: Path, thresholds: np.ndarray) -> list[float]:
    """Return the gaps of pairs of thresholds (m, 2) by comparing all scores with them."""
    chosen, rows = np.zeros((len(thresholds), 2), np.int64), np.zeros(2, np.int64)
    for batch in batches(folder):
        scores = batch.column("score").to_numpy().astype(np.float64)
        names = batch.column("group").dictionary_decode()
        second = pc.equal(names, NAMES[1]).to_numpy(zero_copy_only=False)
        for a, part in enumerate((scores[~second], scores[second])):
            rows[a] += len(part)
            chosen[:, a] += [np.count_nonzero(part > limit) for limit in thresholds[:, a]]
    rates = chosen / rows
    return (rates.max(axis=1) - rates.min(axis=1)).tolist()


def verdict(folder: Path, found: dict[str, Any]) -> str:
    """Return whether the reported gaps equal the recount and keep the tolerances."""
    gaps = np.array(found["gaps"])
    equal = recount(folder, np.array(found["thresholds"])) == found["gaps"]
    kept = "all kept" if (gaps <= TOLERANCES).all() else "NOT KEPT"
    matches = "equal" if equal else "NOT EQUAL"
    return f"{matches}; {kept}, at most {(TOLERANCES - gaps).max():.1e} below the tolerance"


# ---- the run --------------------------------------------------------------------------------


def report(folder: Path, rows: int, repeats: int, seed: int) -> None:
    """Write the files, measure, and print the results."""
    print(machine(PACKAGES))
    size = write_rows(folder, rows, seed)
    print(
        f"\n{rows:,} rows in {FILES} files, {size / 1e6:,.0f} MB; CPU seconds in a fresh process, "
        f"minimum of {repeats} runs; {len(TOLERANCES)} tolerances.\n"
    )
    found = {name: in_a_fresh_process(name, folder, repeats) for name in TASKS}
    alone = found["decoding alone"]["seconds"]
    lines = [
        [
            name,
            f"{values['seconds']:.2f}",
            f"{values['seconds'] / alone:.2f}",
            f"{values['seconds'] / rows * 1e9:.1f}",
            f"{values['memory'] / 1e6:,.0f}",
        ]
        for name, values in found.items()
    ]
    print(table(["", "CPU s", "ratio to decoding", "ns per row", "peak MB"], lines))
    print("\nReported gaps against a recount, another pass over the files:\n")
    checked = {name: verdict(folder, found[name]) for name in ("one pass", "exact, two passes")}
    print("\n".join(f"- {name}: {text}" for name, text in checked.items()))
    summary = summarize_parquet(folder, label="label")
    same_by_query = found["the same counts by DuckDB"]["gaps"] == found["one pass"]["gaps"]
    print(f"- DuckDB's counts give the gaps of one pass: {'yes' if same_by_query else 'NO'}")
    print(f"\n{summary}\n\nGoals:\n")
    times = found["one pass"]["seconds"] / alone
    memory = max(found[name]["memory"] for name in checked)
    recounted = all(text.startswith("equal") for text in checked.values())
    goals = [
        ["one pass against decoding alone", "<= 3x", f"{times:.2f}x", times <= MOST_TIMES],
        ["resident memory", "< 1 GB", f"{memory / 1e9:.2f} GB", memory < MOST_MEMORY],
        ["recount", "equal", "equal" if recounted else "NOT EQUAL", recounted],
    ]
    verdicts = [[*cells, "ok" if met else "miss"] for *cells, met in goals]
    print(table(["result", "goal", "measured", "verdict"], verdicts))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**8, metavar="N")
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder")
    parser.add_argument("--repeats", type=int, default=3, help="runs, of which the minimum counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", choices=list(TASKS), help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick", action="store_true", help="few rows, one run, to check that it works"
    )
    given = parser.parse_args(arguments)
    if given.task is not None:
        print(json.dumps(run_task(given.task, given.folder, given.repeats)))
        return
    rows, repeats = (50_000, 1) if given.quick else (given.rows, given.repeats)
    if given.quick:
        print("A quick run checks that the script works; its numbers mean nothing.\n")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        free = shutil.disk_usage(folder).free
        if free < rows * BYTES_PER_ROW:
            parser.error(f"{rows:,} rows need {rows * BYTES_PER_ROW / 1e9:.1f} GB of disk")
        report(Path(folder), rows, repeats, given.seed)


if __name__ == "__main__":
    main()
