"""Tables of Spark, in local mode: the answers of one process, also if a task fails."""

from __future__ import annotations

import copy
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from fairdial import InvalidInputError, ScoreSummary
from fairdial.large import calibrate, decide, evaluate

from .conftest import TOLERANCES
from .test_engines import LABEL, check_decisions, check_evaluation, check_frontier

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder),
        "spark.local.dir": str(folder),
        "spark.driver.memory": "1g",
    }
    builder = SparkSession.builder.master("local[2, 3]")  # two threads, three attempts
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def table(spark, people, tmp_path_factory):
    """Rows in files, one of them without any."""
    folder = tmp_path_factory.mktemp("rows")
    schema = pa.Schema.from_pandas(people, preserve_index=False)
    for part in range(4):
        own = people[people["id"] % 3 == part]
        pa.parquet.write_table(
            pa.Table.from_pandas(own, schema, preserve_index=False), folder / f"{part}.parquet"
        )
    return spark.read.parquet(str(folder)).repartition(5)


def test_answers_are_those_of_one_process(table, people, boosted):
    found = decide(table, boosted, tolerance=0.05)
    assert isinstance(found, type(table))
    check_decisions(found.toArrow().to_pandas(), people, boosted, 0.05)
    model = calibrate(table, copy.deepcopy(boosted), **LABEL, tolerances=TOLERANCES)
    check_frontier(model, people, boosted)
    check_evaluation(evaluate(table, boosted, **LABEL, tolerance=0.05), people, boosted, 0.05)


def test_a_worker_that_dies_loses_nothing(table, people, boosted, tmp_path):
    died = str(tmp_path / "died")

    def die_once(batches):
        import os
        import signal

        for batch in batches:
            if not os.path.exists(died):
                open(died, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    dying = table.mapInArrow(die_once, table.schema)
    model = calibrate(dying, copy.deepcopy(boosted), **LABEL)
    assert os.path.exists(died)
    whole = calibrate(people, copy.deepcopy(boosted), **LABEL)
    ours, theirs = (m.frontier_.at(TOLERANCES).thresholds for m in (model, whole))
    assert (ours == theirs).all()


def test_spark_sql_counts_and_decides_as_python_does(spark, people, linear):
    rows = people.fillna({"hours": 38.0})
    logits = linear.logits(rows[["age", "hours", "sex"]])
    scored = rows[["id", "sex"]].assign(z=logits, y=(rows["hired"] == "yes").astype(int))
    table = spark.createDataFrame(pa.Table.from_pandas(scored, preserve_index=False))
    table.createOrReplaceTempView("scored")
    query = ScoreSummary.sql("scored", score="z", group="sex", label="y", dialect="spark")
    counts = spark.sql(query).toArrow().to_pandas()
    summary = ScoreSummary.from_scores(scored["z"], scored["sex"], scored["y"])
    assert ScoreSummary.from_counts(counts) == summary

    rule = linear.frontier_.to_sql(0.05, score="z", group="sex", dialect="spark")
    found = spark.sql(f"SELECT {rule} AS d FROM scored ORDER BY id").toArrow()["d"].to_pylist()
    expected = linear.predict(rows[["age", "hours", "sex"]], tolerance=0.05) == "yes"
    assert found == expected.astype(int).tolist()

    lacking = "(SELECT CAST(NULL AS DOUBLE) AS z, 'F' AS sex UNION ALL SELECT double('NaN'), 'F' "
    lacking += "UNION ALL SELECT 1.0D, CAST(NULL AS STRING) UNION ALL SELECT 1.0D, 'other')"
    assert spark.sql(f"SELECT {rule} AS d FROM {lacking}").toArrow()["d"].to_pylist() == [None] * 4
    query = ScoreSummary.sql(lacking, score="z", group="sex", dialect="spark")
    with pytest.raises(InvalidInputError) as caught:
        ScoreSummary.from_counts(spark.sql(query).toArrow().to_pandas())
    assert caught.value.argument in ("bin", "group")
