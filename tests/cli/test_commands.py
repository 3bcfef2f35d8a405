"""The command line as a whole: what starts, what ends, and how."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fairdial import __version__
from fairdial.cli import COMMANDS, main
from fairdial.cli.bench import time_left
from fairdial.cli.export import write_all
from fairdial.cli.groups import Command, Commands
from fairdial.cli.words import in_options
from fairdial.errors import FairdialWarning, warn

HEAVY = ("numpy", "pandas", "sklearn", "scipy", "torch", "pyarrow", "rich", "matplotlib")
HERE = [name for name, command in COMMANDS.items() if command.extra is None]


def test_help_needs_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys\nfrom fairdial.cli import COMMANDS, main\n"
        "for name in [None, *COMMANDS]:\n"
        "    try:\n        main([name, '--help'] if name else ['--help'])\n"
        "    except SystemExit:\n        pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_list_of_commands_says_what_their_help_says() -> None:
    context = click.Context(main)
    for name in HERE:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert {"--json", "--quiet", "--debug"} <= {
            option for parameter in command.params for option in parameter.opts
        } or name == "bench"


@pytest.mark.parametrize("name", HERE)
def test_every_command_has_help_with_a_sentence_for_each_option(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "data":
            assert parameter.help, parameter.name


def test_skops_is_imported_without_torch_and_dask_which_stay_importable() -> None:
    program = (
        "import sys\nfrom importlib.util import find_spec\n"
        "from fairdial.persistence.quick import import_skops\nimport_skops()\n"
        "print('skops.io' in sys.modules, 'torch' in sys.modules, 'dask' in sys.modules)\n"
        "print(find_spec('sklearn.externals.array_api_compat.torch') is not None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "False", "True"], done.stderr


def test_a_wrong_name_is_answered_with_the_nearest(shell: Any) -> None:
    assert "Did you mean 'predict'?" in shell("predcit", code=2).stderr
    assert "No such option '--tolerence'" in shell("dial", "x", "--tolerence", 1, code=2).stderr
    assert shell("--version").stdout == f"fairdial, version {__version__}\n"


@pytest.mark.skipif(find_spec("fairdial.serve") is not None, reason="the server is here")
def test_a_command_whose_libraries_are_missing_names_the_extra(shell: Any) -> None:
    found = shell("serve", "model", "--port", 80, code=1)
    assert "pip install '.[serve]' -c constraints.txt" in found.stderr


def test_debug_shows_where_an_error_came_from(place: Path) -> None:
    dial = ["dial", str(place / "nowhere")]
    for given, shown in ((dial, False), ([*dial, "--debug"], True), (["--debug", *dial], True)):
        found = CliRunner().invoke(main, given)
        assert found.exit_code == 2
        assert ("Traceback" in found.stderr) == shown
        assert found.stderr.splitlines()[-1].startswith("Error: MODEL must be a model's folder")
        assert found.stdout == ""


def test_what_cannot_be_written_ends_with_one(model: Path, place: Path, shell: Any) -> None:
    out = place / "file"
    out.write_text("not a folder")
    found = shell("calibrate", model, place / "new.csv", "--out", out / "m", code=2)
    assert "must lie in a folder that is there" in found.stderr


@pytest.mark.parametrize(
    ("package", "given", "words"),
    [
        ("matplotlib", ("--figures", "figures"), "--figures needs matplotlib: pip install '.[plot"),
        ("torch", ("--networks",), "--networks needs torch: pip install '.[torch]' -c constraints"),
    ],
)
def test_what_the_demonstration_lacks_is_named_before_it_trains(
    package: str,
    given: tuple[str, ...],
    words: str,
    shell: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)  # as if it weren't installed
    found = shell("demo", "--data", "compas", *given, code=1)
    assert found.stderr.startswith(f"Error: {words}")
    assert not list(tmp_path.iterdir())


# ---- export ------------------------------------------------------------------------------------


def test_export_needs_to_know_what(model: Path, shell: Any) -> None:
    assert "--html or --onnx must be given" in shell("export", model, code=2).stderr


@pytest.mark.skipif(find_spec("fairdial.onnx") is not None, reason="ONNX is here")
def test_what_is_not_there_yet_is_said(model: Path, tmp_path: Path, shell: Any) -> None:
    found = shell("export", model, "--onnx", tmp_path / "m.onnx", code=1)
    assert "pip install '.[onnx]' -c constraints.txt" in found.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("fairdial.serve") is None, reason="needs the page")
def test_the_page_is_written_once(model: Path, tmp_path: Path, shell: Any, answer: Any) -> None:
    page = tmp_path / "page.html"
    assert answer("export", model, "--html", page)["html"] == str(page)
    assert "<title>model</title>" in page.read_text("utf-8")
    told = shell("export", model, "--html", page, code=2).stderr
    assert f"--html: {page} is there already; --overwrite replaces it." in told
    named = ("--name", "Loans", "--people", "north=northerners", "--label-names", "no", "yes")
    shell("export", model, "--html", page, "--overwrite", *named)
    text = page.read_text("utf-8")
    assert "<title>Loans</title>" in text
    assert '"people": "northerners"' in text
    assert '"labels": {"negative": "no", "positive": "yes"}' in text


@pytest.mark.skipif(find_spec("fairdial.serve") is None, reason="needs the page")
def test_names_are_for_the_page_and_for_groups_that_there_are(
    model: Path, tmp_path: Path, shell: Any
) -> None:
    page = tmp_path / "page.html"
    wrong = shell("export", model, "--html", page, "--people", "west=westerners", code=2).stderr
    assert "must name groups among north, south, got 'west'" in wrong
    wrong = shell("export", model, "--onnx", tmp_path / "m.onnx", "--name", "Loans", code=2).stderr
    assert "must come with --html" in wrong
    assert not list(tmp_path.iterdir())


def test_export_writes_everything_or_nothing(model: Path, tmp_path: Path, shell: Any) -> None:
    page, graph = tmp_path / "a.html", tmp_path / "b.onnx"
    found = shell("export", model, "--html", page, "--onnx", graph, code=2)
    assert (
        "--onnx is for networks with thresholds only (train --method fairbayes or gfb), got "
        in (found.stderr)
    )
    assert "a model of logistic." in found.stderr

    def fail(path: Path) -> None:
        raise OSError(path)

    with pytest.raises(OSError, match=r"b\.onnx"):
        write_all({page: Path.touch, graph: fail})
    assert not list(tmp_path.iterdir())
    found = shell("export", model, "--html", tmp_path / "dial.txt", code=2)
    assert "--html must end in .html or .htm, got 'dial.txt'" in found.stderr


# ---- words -------------------------------------------------------------------------------------


def test_arguments_of_python_are_called_as_the_command_calls_them() -> None:
    told = {
        "train": {
            "`sensitive_features` must hold two groups": "--sensitive must hold two groups",
            "`y` must hold two classes": "--label must hold two classes",
            "raise `epochs` or lower `warm_epochs`": "raise --epochs",
            "needs torch (or give FairBayes an estimator of scikit-learn).": "needs torch.",
            "overwrite=True replaces it": "--overwrite replaces it",
            "at least min_count=30 rows": "at least --min-count 30 rows",
            "(`calibration=`)": "(--calibration)",
            "recalibrate='group' repairs it": "training with --recalibrate repairs it",
        },
        "predict": {
            "`sensitive_features` holds groups": "DATA holds groups",
            "`folder` must be": "MODEL must be",
            "`key` must have": "--key-file must have",
            "`manifest.json` must": "`manifest.json` must",
            "`tolerance`=0.01 can't": "--tolerance=0.01 can't",
            "no state of the dial has a demographic_parity gap": "no position of the dial has a "
            "demographic parity gap",
            "the smallest gap is used and feasible is False": "the smallest gap is used",
        },
        "calibrate": {
            "`path` must hold": "DATA must hold",
            "`score` must be": "--scores must be",
            "`group` must hold": "--group must hold",
        },
        "serve": {"or start with `read_only`.": "or start with --read-only."},
    }
    for name, pairs in told.items():
        command = main.get_command(click.Context(main), name)
        assert {old: in_options(old, command) for old in pairs} == pairs


def test_of_several_processes_one_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def speak() -> None:
        warn("once", FairdialWarning)

    group = Commands("group", lazy={"speak": Command("nowhere:speak", "")})
    monkeypatch.setattr(group, "get_command", lambda *_: speak)
    for size, rank, lines in (("1", "0", 1), ("2", "0", 1), ("2", "1", 0), ("1", "3", 1)):
        monkeypatch.setenv("WORLD_SIZE", size)
        monkeypatch.setenv("RANK", rank)
        assert CliRunner().invoke(group, ["speak"]).stderr.count("Warning: once") == lines


# ---- the demonstration -------------------------------------------------------------------------


def test_the_demonstration_tells_the_story(place: Path, shell: Any) -> None:
    out = place / "compas"
    found = shell("demo", "--data", "compas", "--out", out, "--figures", place / "figures")
    assert "Who is taken to be charged again within two years" in found.stdout
    assert "these rows can't promise it" in found.stdout
    assert "Thresholds are log-odds" in found.stdout
    assert "Gap: the difference between the groups' shares of selected rows" in found.stdout
    assert "Next, on a table of your own: fairdial train " in found.stderr.splitlines()[-1]
    assert "\n* no position of the dial has so small a gap\n" in found.stdout
    assert (place / "figures" / "demo-frontier.png").stat().st_size > 10_000
    told = json.loads(shell("dial", out, "--tolerance", 0.05, "--json").stdout)
    assert told["gap"] <= 0.05


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "less than a minute"), (60, "about 1.0 minutes")]
)
def test_the_time_that_is_left_is_told_in_words(seconds: float, words: str) -> None:
    assert time_left(seconds) == words
