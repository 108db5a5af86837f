"""The command line, run as a user runs it."""

from __future__ import annotations

import inspect
import io
import json
import shlex
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import sampa
from sampa.catalog import find_method
from sampa.lab import cli
from sampa.lab.cli import COMMANDS, main, overview
from sampa.lab.commands.arguments import ARGUMENTS
from sampa.lab.training.recipes import RECIPES
from sampa.methods.sampa import SAMPaMethod


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands set the number of threads, here of the tests' own process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sampa", *args], capture_output=True, text=True, check=False
    )


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ended with."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


# ---- sampa methods ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """What one call of the command prints, and what it writes."""
    file = tmp_path_factory.mktemp("methods") / "methods.json"
    with redirect_stdout(io.StringIO()) as shown:
        assert main(["methods", "--json", str(file)]) == 0
    return shown.getvalue(), json.loads(file.read_text())


def test_methods_writes_every_method_with_its_counts(
    listed: tuple[str, list[dict[str, Any]]],
) -> None:
    rows = {row["name"]: row for row in listed[1]}
    assert list(rows) == list(sampa.METHODS)
    counts = {name: (row["probes"], row["rounds"]) for name, row in rows.items()}
    assert counts["base"] == (1, 1)
    assert counts["sam"] == (2, 2)
    assert counts["sampa"] == (2, 1)
    assert counts["optgd"] == counts["randsam"] == counts["momentum-sam"] == (1, 1)
    assert counts["looksam"] == (1.2, 1.2)  # 1 + 1/k
    assert counts["multi-step-sam"] == (4, 4)  # K + 1
    assert counts["async-sam"] == (2, 1)
    assert rows["sampa"]["hyperparameters"]["lam"] == 0.2


def test_methods_prints_a_table_that_names_each_method(
    listed: tuple[str, list[dict[str, Any]]],
) -> None:
    assert all(name in listed[0] for name in sampa.METHODS)


@pytest.mark.parametrize(
    ("name", "lam"), [("sampa", 0.2), ("sampa-0", 0.0), ("sampa-0.1", 0.1), ("sampa-1", 1.0)]
)
def test_sampa_names_carry_their_lambda(name: str, lam: float) -> None:
    import torch

    base = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    method = find_method(name)(base).method
    assert isinstance(method, SAMPaMethod)
    assert method.lam == lam


# ---- help ------------------------------------------------------------------------------------


def test_the_overview_names_the_commands() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert all(name in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_shows_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"    sampa {name}" in shown.split("Examples:")[1]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_is_quiet_and_fits(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No default that says nothing, no second form of a flag, and no line beyond the terminal."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out.replace("\u200b", "")
    assert "(default: None)" not in shown
    assert "(default: False)" not in shown
    assert "--no-" not in shown
    assert [line for line in shown.splitlines() if len(line) > columns] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_breaks_lines_where_the_terminal_does(name: str) -> None:
    """tyro keeps a break before anything but a letter: a docstring must not have one there."""
    kind = ARGUMENTS[name]
    parts = [f.default_factory for f in fields(kind) if inspect.isclass(f.default_factory)]
    for described in (kind, *parts):
        listed = (inspect.getdoc(described) or "").partition("Attributes:")[2]
        for line in listed.splitlines():
            goes_on = line.startswith("        ")
            assert not goes_on or line.strip()[0].isalpha(), line


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_overview_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert [line for line in overview().splitlines() if len(line) > columns] == []


def test_a_command_of_help_can_be_pasted_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    example = "sampa train cifar10-resnet56 --method sampa --devices 2 --data-dir ~/data"
    joined = capsys.readouterr().out.replace("\\\n", " ")
    assert example in " ".join(joined.split())


@pytest.mark.parametrize("arguments", ["--help", "--version", "train --list"])
def test_output_that_nobody_reads_to_its_end_is_no_error(arguments: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m sampa {arguments} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_train_help_explains_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("\u200b", "").split())
    assert "130 and 143 stopped by Ctrl-C or SIGTERM" in shown


def test_the_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--list"]) == 0
    shown = capsys.readouterr().out.split()
    assert all(name in shown for name in RECIPES)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sampa {sampa.__version__}\n"


def test_every_command_has_its_arguments() -> None:
    assert list(ARGUMENTS) == list(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("mehtods", 2),
        ("train digits-cpu --rhoo 1", 2),
        ("train digits-cpu --epochs many", 2),
        ("train --list", 0),
        ("train digits-cup", 2),
        ("train digits-cpu --rho -1", 2),
        ("compare digits-cpu --methods", 2),
        ("sweep digits-cpu --rho x", 2),
        ("report nowhere", 2),
        *((f"{name} --help", 0) for name in COMMANDS),
    ],
)
def test_help_and_wrong_arguments_do_not_wait_for_torch(arguments: str, code: int) -> None:
    """Nor for typeguard, which tyro imports to check types that it does not know, with asyncio."""
    program = f"""
import sys
from sampa.lab.cli import main
try:
    code = main({arguments.split()!r})
except SystemExit as ended:
    code = ended.code
sys.exit(99 if {{"torch", "typeguard", "asyncio"}} & sys.modules.keys() else code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == code


# ---- what goes wrong, said in one line -------------------------------------------------------


def test_an_unknown_command_is_refused_with_the_nearest_name() -> None:
    result = run("mehtods")
    assert result.returncode == 2
    assert "did you mean 'methods'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train digitscpu", "recipe must be a known name, got 'digitscpu'; did you mean 'digits-c"),
        ("compare digitscpu", "recipe must be a known name"),
        ("train digits-cpu --method smapa", "method must be a known name, got 'smapa'; did you me"),
        ("train digits-cpu --method sdg", "did you mean 'sgd'"),
        ("train digits-cpu --method smapa --devices 2", "did you mean 'sampa'"),
        ("compare digits-cpu --methods sam loksam", "did you mean 'looksam'"),
        ("train digits-cpu --rho -1 --devices 2", "rho must be finite and >= 0, got -1.0"),
        ("train digits-cpu --lam 2", "lam must be"),
        (
            "train digits-cpu --method sgd --rho 1",
            "method sgd has no hyper-parameter rho",
        ),
        ("train digits-cpu --epochs 0", "epochs must be >= 1, got 0"),
        ("train digits-cpu --batch-size 100000", "batch_size must be between 1 and"),
        ("train digits-cpu --epochs -1", "--epochs must be >= 1, got -1"),
        ("train digits-cpu --devices 0", "--devices must be >= 1, got 0"),
        ("train digits-cpu --devices -2", "--devices must be >= 1, got -2"),
        ("train digits-cpu --devices 3", "sampa needs a multiple of 2 processes to compute 2"),
        ("train digits-cpu --threads 0", "--threads must be >= 1, got 0"),
        ("train digits-cpu --save-every -3", "--save-every must be >= 1, got -3"),
        ("train digits-cpu --limit-steps 0", "--limit-steps must be >= 1, got 0"),
        ("train digits-cpu --max-restarts -1", "--max-restarts must be >= 0, got -1"),
        ("train digits-cpu --timeout 0", "--timeout must be > 0 and at most 1e8, got 0.0"),
        ("train digits-cpu --seed -1", "--seed must be >= 0, got -1"),
        ("train digits-cpu --lr 0", "--lr must be finite and > 0, got 0.0"),
        ("train digits-cpu --lr nan", "--lr must be finite and > 0, got nan"),
        ("train digits-cpu --rho inf", "--rho must be finite and >= 0, got inf"),
        ("train digits-cpu --lam -0.1", "--lam must be finite and >= 0, got -0.1"),
        ("train digits-cpu --lam 3", "lam must be in [0, 1], got 3.0"),
        ("train digits-cpu --device toaster", "--device must name a device such as cpu or cuda"),
        ("train digits-cpu --device cuda", "--device cuda is not available"),
        ("train cifar10-cpu --data-dir missing", "--data-dir must be an existing folder, got 'mis"),
        ("compare digits-cpu --methods", "--methods must be one name or more, got none"),
        ("compare digits-cpu --seeds 0", "--seeds must be >= 1, got 0"),
        ("compare digits-cpu --first-seed -1", "--first-seed must be >= 0, got -1"),
        ("compare digits-cpu --jobs 0", "--jobs must be >= 1, got 0"),
        ("compare digits-cpu --devices 0", "--devices must be >= 1, got 0"),
        ("compare digits-cpu --devices 3", "sampa needs a multiple of 2 processes"),
        ("compare digits-cpu --extra=--threads=0", "--threads must be >= 1, got 0"),
        ("compare digits-cpu --extra=--device=toaster", "--device must name a device"),
        ("sweep digitscpu", "recipe must be a known name"),
        ("sweep digits-cpu --rho 0.1,x", "--rho must be finite numbers >= 0 with commas between"),
        ("sweep digits-cpu --rho 0.1,-1", "--rho must be finite numbers >= 0"),
        ("sweep digits-cpu --lam 0,2", "lam must be in [0, 1], got 2.0"),
        ("sweep digits-cpu --rho", "--rho or --lam must have values to try, got none"),
        ("sweep digits-cpu --method sgd", "method sgd has no hyper-parameter rho"),
        ("sweep digits-cpu --method sam --lam 0.2", "method sam has no hyper-parameter lam"),
        ("sweep digits-cpu --devices 3", "sampa needs a multiple of 2 processes"),
        ("sweep digits-cpu --seeds 0", "--seeds must be >= 1, got 0"),
        ("reproduce tab-cifra10", "did you mean 'tab-cifar10'"),
        ("reproduce tab-noise --seeds 0", "--seeds must be >= 1, got 0"),
        ("reproduce tab-noise --devices 0", "--devices must be >= 1, got 0"),
        ("reproduce tab-noise --jobs -1", "--jobs must be >= 1, got -1"),
        ("eval missing", "run-folder must be an existing folder, got 'missing'"),
        ("report", "folders must be one folder or more, such as runs, got none"),
        ("report missing", "folders must be existing folders, got 'missing'"),
        ("demo --devices 0", "--devices must be >= 1, got 0"),
        ("demo --devices 3", "sampa needs a multiple of 2 processes"),
        ("demo --seeds 0", "--seeds must be >= 1, got 0"),
        ("bench --rounds 0", "--rounds must be >= 1, got 0"),
        ("bench --batch-size 1", "--batch-size must be >= 2, got 1"),
        ("bench --model resnet21", "model must be a known name, got 'resnet21'; did you mean"),
        ("bench --device toaster", "--device must name a device"),
        ("bench --device cuda", "--device cuda is not available"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    assert message in complaint(capsys)
    assert list(tmp_path.rglob("checkpoints")) == []  # nothing was begun


@pytest.mark.parametrize(
    "arguments",
    ["train digits-cpu --rhoo 1", "train digits-cpu --epochs many", "compare digits-cpu --amp x"],
)
def test_wrong_usage_has_an_exit_code_of_its_own(arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["eval", "report", "flatness"])
def test_a_folder_without_runs_is_wrong_usage(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert str(tmp_path) in complaint(capsys)


def test_train_without_a_recipe_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    assert "digits-cpu" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["methods", "--json", str(tmp_path / "missing" / "methods.json")]) == 1
    assert "No such file or directory" in complaint(capsys)


def test_ctrl_c_before_training_begins_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sampa.lab.commands.train.configured", interrupted)
    assert main(["train", "digits-cpu"]) == 130
    assert complaint(capsys) == "sampa train: interrupted"


def test_ctrl_c_during_the_first_imports_is_one_line() -> None:
    program = """
import sys
from sampa.__main__ import main
class CtrlC:
    def find_spec(self, name, *_):
        if name == "sampa.lab.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.exit(main())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "sampa: interrupted\n")


def test_a_package_that_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("no package x; install it with pip install x")

    monkeypatch.setattr("sampa.lab.commands.train.configured", missing)
    assert main(["train", "digits-cpu"]) == 1
    assert complaint(capsys) == "sampa train: no package x; install it with pip install x"


@pytest.mark.parametrize("kind", [ImportError, SystemError])
def test_ctrl_c_while_an_extension_is_loaded_is_an_interruption(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its initialization fails then, with an error of its own."""

    def interrupted(name: str, args: object) -> int:
        raise kind("initialization failed") from KeyboardInterrupt()

    def broken(name: str, args: object) -> int:
        raise kind("no such symbol")

    monkeypatch.setattr(cli, "run", interrupted)
    assert cli.main(["report"]) == 130
    assert capsys.readouterr().err == "sampa report: interrupted\n"
    monkeypatch.setattr(cli, "run", broken)
    with pytest.raises(kind, match="no such symbol"):
        cli.main(["report"])


def test_ctrl_c_during_imports_is_heeded_after_them() -> None:
    done: list[str] = []

    def interrupt_an_import() -> None:
        with cli.heeded_afterwards(signal.SIGINT):
            signal.raise_signal(signal.SIGINT)
            done.append("imported")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt_an_import()
    assert done == ["imported"]
    assert signal.getsignal(signal.SIGINT) is before
