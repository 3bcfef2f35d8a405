"""
Run a study on a cluster
========================

A study compares methods on the same splits. Each trial leaves one record, so an interrupted study
resumes where it stopped, on one machine or on many.
"""

# %%
# The plan
# --------
#
# The plan lists two classifiers under the same dial and three splits. The library has larger plans,
# such as ``fairdial bench run quick --out study``.

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
title = "Trees against logistic regression"
datasets = ["compas"]
seeds = [0, 5, 10]
settings = 4
baseline = "logistic"

[[methods]]
name = "logistic"
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
# On a real cluster, ``dask scheduler`` runs on one machine and ``dask worker tcp://...
# --nthreads 1`` on each of the others. Here everything runs on one machine.

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
# You can stop this at any time; the same command resumes it.


def fairdial(*arguments: str) -> str:
    """Run a fairdial command and return what it prints."""
    done = subprocess.run([*python, "fairdial", *arguments], capture_output=True, text=True)
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
# The report is Markdown, LaTeX and one HTML page, made from the records alone. Three seeds say
# little about the methods, and the report says so.

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
