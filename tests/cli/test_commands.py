"""The command line as a whole: imports, errors, exit codes, and the small commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fairdial import __version__
from fairdial.cli import COMMANDS, Command, Commands, main
from fairdial.cli.bench import time_left
from fairdial.cli.errors import option_name
from fairdial.cli.output import write_files
from fairdial.errors import CannotCertifyError, FairdialWarning, InvalidInputError, render, warn

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


@pytest.mark.parametrize("name", HERE)
def test_every_command_has_help_for_each_option_and_the_common_ones(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []
    names = {opt for one in options for opt in one.opts}
    assert {"--json", "--quiet", "--debug"} <= names or name == "bench"


def test_info_and_dial_need_neither_scikit_learn_nor_torch(model: Path) -> None:
    program = (
        "import sys\nfrom fairdial.cli import main\n"
        f"for name in ('info', 'dial'):\n    main([name, {str(model)!r}], standalone_mode=False)\n"
        "print([name for name in ('sklearn', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_skops_is_imported_without_torch_and_dask_which_stay_importable() -> None:
    program = (
        "import sys\nfrom importlib.util import find_spec\n"
        "from fairdial.io.objects import import_skops\nimport_skops()\n"
        "print('skops.io' in sys.modules, 'torch' in sys.modules, 'dask' in sys.modules)\n"
        "print(find_spec('sklearn.externals.array_api_compat.torch') is not None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "False", "True"], done.stderr


def test_a_wrong_name_is_answered_with_the_closest(shell: Any) -> None:
    assert "'predict'" in shell("predcit", code=2).stderr
    assert "'--tolerence'" in shell("dial", "x", "--tolerence", 1, code=2).stderr
    assert shell("--version").stdout == f"fairdial, version {__version__}\n"


# ---- errors ------------------------------------------------------------------------------------


def context(name: str, *given: str) -> click.Context:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command.make_context(name, list(given), resilient_parsing=True)


@pytest.mark.parametrize(
    ("command", "text", "rendered"),
    [
        ("train", "`sensitive_features` must", "--sensitive must"),
        ("train", "`y` and `random_state`", "--label and --seed"),
        ("train", "`min_count=30`", "--min-count 30"),
        ("train", "`recalibrate='group'` or `overwrite=True`", "--recalibrate or --overwrite"),
        ("train", "`drop=a b`", "--drop 'a b'"),
        ("train", "`folder` must", "--out must"),
        ("train", "min_count=30 y tolerance", "min_count=30 y tolerance"),
        ("predict", "`sensitive_features` must", "DATA must"),
        ("predict", "`folder` must", "MODEL must"),
        ("predict", "`key` must", "--key-file must"),
        ("predict", "`cv` and `manifest.json`", "`cv` and `manifest.json`"),
        ("predict", "`tolerance=0.1` can't", "the default tolerance 0.1 can't"),
        ("calibrate", "`path`, `score`, `group`", "DATA, --scores, --group"),
        ("dial", "`keep`", "--set"),
    ],
)
def test_arguments_have_the_names_of_the_command(command: str, text: str, rendered: str) -> None:
    assert render(text, option_name(context(command))) == rendered


def test_a_tolerance_that_was_given_is_named_by_its_option() -> None:
    command = main.get_command(click.Context(main), "dial")
    assert command is not None
    given = command.make_context("dial", ["model", "--tolerance", "0.1"])
    assert option_name(given)("tolerance", "0.1") == "--tolerance 0.1"


def failing(error: Exception) -> Commands:
    @click.command()
    @click.option("--seed")
    def fail(seed: str) -> None:  # noqa: ARG001
        raise error

    class Group(Commands):
        def get_command(self, *_: Any) -> click.Command:
            return fail

    return Group("group", lazy={"fail": Command("nowhere:fail", "")})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInputError("random_state", "be 0"), 2),
        (CannotCertifyError("no"), 1),
        (OSError("full"), 1),
        (ZeroDivisionError("oh"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    found = CliRunner().invoke(failing(error), ["fail"])
    assert found.exit_code == code
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1


def test_hints_that_name_other_arguments_are_dropped_and_notes_are_added() -> None:
    error = InvalidInputError(
        "y", "be 0", given="1", hint=("Set `epochs`.", "Set `cv=5`.", "Or not.")
    )
    error.add_note("Also `min_count=3`.")
    message = error.render(option_name(context("train")))
    assert message == "--label must be 0, got 1. Set --epochs. Or not."
    found = CliRunner().invoke(failing(error), ["fail"])
    assert found.stderr.endswith("got 1. Or not. Also `min_count=3`.\n")


def test_debug_shows_the_traceback(place: Path) -> None:
    dial = ["dial", str(place / "nowhere")]
    for given, shown in ((dial, False), ([*dial, "--debug"], True), (["--debug", *dial], True)):
        found = CliRunner().invoke(main, given)
        assert found.exit_code == 2
        assert ("Traceback" in found.stderr) == shown
        assert found.stderr.splitlines()[-1].startswith("Error: MODEL must")
        assert found.stdout == ""


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


@pytest.mark.skipif(find_spec("fairdial.serve") is not None, reason="the server is here")
def test_a_command_whose_libraries_are_missing_names_the_extra(shell: Any) -> None:
    assert "pip install '.[serve]'" in shell("serve", "model", "--port", 80, code=1).stderr


# ---- export ------------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("fairdial.io.onnx") is not None, reason="ONNX is here")
def test_a_missing_extra_is_named(model: Path, tmp_path: Path, shell: Any) -> None:
    found = shell("export", model, "--onnx", tmp_path / "m.onnx", code=1)
    assert "pip install '.[onnx]'" in found.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(find_spec("fairdial.serve") is None, reason="needs the page")
def test_the_page_is_written_once(
    model: Path, tmp_path: Path, shell: Any, answer: Any, refused: Any
) -> None:
    page = tmp_path / "page.html"
    assert answer("export", model, "--html", page)["html"] == str(page)
    assert "<title>model</title>" in page.read_text("utf-8")
    refused("export", model, "--html", page, option="--html", names=("--overwrite",))
    named = ("--name", "Loans", "--people", "north=northerners", "--label-names", "no", "yes")
    shell("export", model, "--html", page, "--overwrite", *named)
    text = page.read_text("utf-8")
    assert "<title>Loans</title>" in text
    assert '"people": "northerners"' in text
    assert '"labels": {"negative": "no", "positive": "yes"}' in text


@pytest.mark.skipif(find_spec("fairdial.serve") is None, reason="needs the page")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudoterminal")
@pytest.mark.parametrize("quiet", [False, True])
def test_names_that_are_not_given_are_asked_for_on_a_terminal(
    model: Path, tmp_path: Path, quiet: bool
) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "fairdial", "export", str(model), "--html", str(page)]
    here, there = os.openpty()
    os.write(here, b"Loans\nnortherners\n\ndefaulted\nrepaid\n")
    options = ["--quiet"] if quiet else []
    done = subprocess.run([*command, *options], stdin=there, stdout=subprocess.PIPE, stderr=there)
    os.close(there)
    os.close(here)
    assert done.returncode == 0
    text = page.read_text("utf-8")
    assert ("<title>Loans</title>" in text) != quiet
    assert ('"name": "north", "people": "northerners"' in text) != quiet
    assert '"name": "south", "people": null' in text
    assert ('"negative": "defaulted", "positive": "repaid"' in text) != quiet


@pytest.mark.skipif(find_spec("fairdial.serve") is None, reason="needs the page")
@pytest.mark.parametrize(
    ("given", "option", "name"),
    [
        (["--html", "page.html", "--people", "west=westerners"], "--people", "'west'"),
        (["--onnx", "m.onnx", "--name", "Loans"], "--name", "--html"),
        (["--html", "a.html", "--onnx", "b.txt"], "--onnx", "'b.txt'"),
        (["--html", "dial.txt"], "--html", "'dial.txt'"),
    ],
)
def test_exports_that_cannot_be_made_write_nothing(
    given: list[str], option: str, name: str, model: Path, tmp_path: Path, refused: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused("export", model, *given, option=option, names=(name,))
    assert not list(tmp_path.iterdir())


def test_an_export_needs_a_file(model: Path, shell: Any) -> None:
    message = shell("export", model, code=2).stderr.splitlines()[-1]
    assert "--html" in message
    assert "--onnx" in message


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_files({tmp_path / "a.html": Path.touch, tmp_path / "b.onnx": fail})
    assert not list(tmp_path.iterdir())


# ---- the demo ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "option", "extra"),
    [("matplotlib", ("--figures", "figures"), "plot"), ("torch", ("--networks",), "torch")],
)
def test_what_the_demo_lacks_is_named_before_it_trains(
    package: str, option: tuple[str, ...], extra: str, shell: Any, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)  # as if it weren't installed
    found = shell("demo", "--data", "compas", *option, code=1)
    assert found.stderr.startswith(f"Error: {option[0]} needs {package}: ")
    assert f".[{extra}]" in found.stderr
    assert not list(tmp_path.iterdir())


def test_the_demo_draws_and_saves_a_model(place: Path, shell: Any) -> None:
    out = place / "compas"
    found = shell("demo", "--data", "compas", "--out", out, "--figures", place / "figures")
    assert "Not Caucasian" in found.stdout
    assert (place / "figures" / "demo-frontier.png").stat().st_size > 10_000
    point = json.loads(shell("dial", out, "--tolerance", 0.05, "--json").stdout)
    assert point["gap"] <= 0.05


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "less than a minute"), (60, "about 1.0 minutes")]
)
def test_the_time_that_is_left(seconds: float, text: str) -> None:
    assert time_left(seconds) == text
