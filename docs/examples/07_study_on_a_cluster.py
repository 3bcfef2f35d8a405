"""
A study on a cluster
====================

A study compares methods on the same splits. Each trial is a file that is written once: a study can
be stopped and goes on where it was, on one machine or on many.
"""

# %%
# The plan
# --------
#
# What to run, as data: two scorers under the same dial, three splits.
# ``fairdial bench run quick --out study`` runs a larger plan that comes with the library.

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
plan = folder / "plan.toml"
_ = plan.write_text("""
title = "Trees against a line"
datasets = ["compas"]
seeds = [0, 5, 10]
settings = 4
baseline = "line"

[[methods]]
name = "line"
estimator = "FairBayes"
scorer = "logistic regression"

[[methods]]
name = "trees"
estimator = "FairBayes"
scorer = "gradient boosting"
""")

# %%
# The cluster
# -----------
#
# On real machines somebody has started these two already: ``dask scheduler`` on one, ``dask worker
# tcp://... --nthreads 1`` on each of the others. Here all run on this one.

python = (sys.executable, "-m")
address = folder / "scheduler.json"
quiet = {"stderr": (folder / "cluster.log").open("w")}
common = ("--scheduler-file", str(address), "--no-dashboard")
scheduler = subprocess.Popen(
    [*python, "distributed.cli.dask_scheduler", *common, "--host", "127.0.0.1", "--port", "0"],
    **quiet,
)
workers = subprocess.Popen(
    [*python, "distributed.cli.dask_worker", *common, "--nthreads", "1", "--nworkers", "2"],
    cwd=folder,
    **quiet,
)
for _ in range(600):
    if address.exists() and address.read_text():
        break
    time.sleep(0.1)
tcp = json.loads(address.read_text())["address"]

# %%
# The run
# -------
#
# The same command does what is missing, so that it may be stopped at any time.


def fairdial(*words: str) -> str:
    """What a command of fairdial prints."""
    done = subprocess.run([*python, "fairdial", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


study = str(folder / "study")
try:
    done = fairdial(
        "bench", "run", str(plan), "--out", study, "--backend", "dask", "--scheduler", tcp
    )
    print(done)
finally:
    for process in (workers, scheduler):
        process.terminate()
        process.wait()
    quiet["stderr"].close()

# %%
# The report
# ----------
#
# Markdown, LaTeX and one HTML page, from the records alone. Three seeds show little about the
# methods, and the report says so.

fairdial("bench", "report", "--out", study)
report = folder / "study" / "report"
text = (report / "report.md").read_text()
print(text[text.index("## In short") : text.index("## 1.")])

picture = plt.imread(report / "figures" / "tradeoffs.png")
fig, ax = plt.subplots(figsize=(7, 7 * picture.shape[0] / picture.shape[1]), layout="constrained")
ax.imshow(picture)
ax.axis("off")
plt.show()
temporary.cleanup()
