"""The examples run, and the Python blocks of README.md and docs do what they say.

Blocks fenced as ```python are run. The blocks of one section (`## ...`) run one after the other in
one namespace, after the page's beginning (the blocks before the first section). Blocks fenced as
```python ranks=N run on N processes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.ranks import run_ranks

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TWO_RANKS = [
    *("-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"),
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"),
]


# ---- examples --------------------------------------------------------------------------------


def run_example(name: str, *arguments: str, launcher: list[str] | None = None) -> str:
    options = ["-W", "error"] if launcher is None else launcher
    command = [sys.executable, *options, str(ROOT / "examples" / name)]
    finished = subprocess.run(
        [*command, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def accuracies(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+) %", output)]


def test_minimal_learns_the_digits() -> None:
    assert accuracies(run_example("minimal.py", "--epochs", "3"))[-1] > 85


@pytest.mark.slow
def test_own_method_learns_and_becomes_sampa_in_the_limit() -> None:
    output = run_example("own_method.py", "--epochs", "3")
    assert accuracies(output)[-1] > 85
    assert "with beta = 0 it is SAMPa, bit for bit: True" in output


@pytest.mark.slow
@pytest.mark.dist
def test_two_devices_prints_the_same_weights_on_one_and_two_processes() -> None:
    one = run_example("two_devices.py", "--epochs", "2")
    two = run_example("two_devices.py", "--epochs", "2", launcher=TWO_RANKS)
    hashes = re.findall(r"weights (\w+)", one) + re.findall(r"weights (\w+)", two)
    assert len(hashes) == 3
    assert len(set(hashes)) == 1
    assert accuracies(one) == accuracies(two)
    assert accuracies(one)[-1] > 75
    assert "bytes sent" in two


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "least"),
    [
        ("muon_adamw.py", ["--epochs", "3"], 80),
        ("ema_swa.py", ["--epochs", "3"], 90),
        ("compiled.py", ["--epochs", "2", "--backend", "eager"], 85),
        ("gan.py", ["--steps", "600"], 80),
    ],
)
def test_an_example_reaches_what_it_shows(name: str, arguments: list[str], least: float) -> None:
    assert min(accuracies(run_example(name, *arguments))) > least


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize(
    "name",
    ["huggingface_glue.py", "lightning_cifar.py", "accelerate_loop.py", "lora_finetune.py"],
)
def test_a_framework_learns_the_same_on_one_and_two_processes(name: str) -> None:
    one = run_example(name, "--epochs", "2", launcher=[])
    two = run_example(name, "--epochs", "2", launcher=TWO_RANKS)
    assert accuracies(one)[-1] > 80
    assert {*accuracies(two)} == {accuracies(one)[-1]}


# ---- documentation ---------------------------------------------------------------------------


@dataclass
class Section:
    """A section of a page: its code, padded so that line numbers are those of the page."""

    title: str
    page: str
    ranks: int = 1
    blocks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"


def sections(page: str) -> list[Section]:
    """The sections of a page; the first is its beginning. One per number of ranks."""
    found = [Section("", page)]
    title, block, ranks = "", None, 1
    for number, line in enumerate((ROOT / page).read_text().splitlines()):
        if block is not None:
            if line == "```":
                section = next((s for s in found if (s.title, s.ranks) == (title, ranks)), None)
                if section is None:
                    section = Section(title, page, ranks)
                    found.append(section)
                section.blocks.append("\n".join(block))
                block = None
            else:
                block.append(line)
        elif line.startswith("## "):
            title = line.removeprefix("## ")
        elif match := re.fullmatch(r"```python(?: ranks=(\d+))?", line):
            block, ranks = [""] * (number + 1), int(match[1] or 1)
    assert block is None, f"{page}: a block is not closed"
    return found


def execute(blocks: list[str], page: str, namespace: dict[str, Any]) -> None:
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


def execute_on_rank(blocks: list[str], page: str, folder: str) -> None:
    os.chdir(folder)
    execute(blocks, page, {"__name__": "__main__"})


HOW_TO = sorted((ROOT / "docs/how-to").glob("*.md"))
START, *RECIPES = (
    section
    for page in sorted(HOW_TO, key=lambda page: page.name != "index.md")
    for section in sections(page.relative_to(ROOT).as_posix())
    if section.blocks
)


@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.ranks == 1], ids=str)
def test_recipe_runs(recipe: Section, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute([*START.blocks, *recipe.blocks], recipe.page, {"__name__": "__main__"})


@pytest.mark.dist
@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.ranks > 1], ids=str)
def test_recipe_runs_on_ranks(recipe: Section, tmp_path: Path) -> None:
    blocks = [*START.blocks, *recipe.blocks]
    run_ranks(recipe.ranks, execute_on_rank, blocks, recipe.page, str(tmp_path))


TUTORIAL = "docs/own-method.md"
TUTORIAL_BLOCKS = [block for section in sections(TUTORIAL) for block in section.blocks]


def tutorial_weights() -> Tensor:
    """What the page trains; its blocks are one script."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    execute(TUTORIAL_BLOCKS, TUTORIAL, namespace)
    return namespace["weights"]


@pytest.mark.dist
def test_tutorial_trains_the_same_weights_in_one_process_and_on_two() -> None:
    (one,) = run_ranks(1, tutorial_weights)
    assert all(torch.equal(one, weights) for weights in run_ranks(2, tutorial_weights))


def test_classes_of_the_tutorial_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "own_method.py").read_text()
    shown = ["@dataclass" + b.split("@dataclass", 1)[1] for b in TUTORIAL_BLOCKS if "(frozen" in b]
    assert [block in example for block in shown] == [True, True, False]  # the last is a piece


SCRIPTS = ["docs/flatness.md"]  # pages whose blocks are one script
COMING_FROM = "docs/coming-from.md"  # run by test_coming_from.py


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_blocks_of_a_page_run_one_after_the_other(page: str) -> None:
    torch.manual_seed(0)
    blocks = [block for section in sections(page) for block in section.blocks]
    execute(blocks, page, {"__name__": "__main__"})


def readme_namespace() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "__name__": "__main__",
        "model": nn.Linear(4, 3),
        "loader": [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(2)],
    }


def test_readme_example_runs_as_it_is() -> None:
    blocks = [block for section in sections("README.md") for block in section.blocks]
    assert len(blocks) == 1
    namespace = readme_namespace()
    execute(blocks, "README.md", namespace)
    assert namespace["optimizer"].last.step == 2 - 1  # T+1 batches make T updates


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose)
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["docs/maths.md", "docs/architecture.md"])
def test_files_and_names_in_code_exist(page: str) -> None:
    """What a page sets in code type is a file of the repository, or made of names in its code."""
    prose = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    code = re.findall(r"`([^`\n]+)`", prose)
    files = [c for c in code if re.fullmatch(r"[\w/]+\.(py|md)", c)]
    names = {n for c in code if c not in files for n in re.findall(r"[A-Za-z_]\w{2,}", c)}
    roots = (ROOT, ROOT / "src/sampa")
    assert not [f for f in files if not any((root / f).exists() for root in roots)]
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), ROOT / "pyproject.toml"]
    known = set(re.findall(r"\w+", "".join(path.read_text() for path in sources)))
    assert not names - known


def test_messages_quoted_among_the_common_errors_exist() -> None:
    text = (ROOT / "docs/how-to/errors.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    ours = [re.findall(r"`([^`]+)`", row)[0] for row in rows if "(torch's message" not in row]
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert len(ours) > 10
    for message in ours:  # a message may be broken over the lines of a string
        words = r"[\s\"f]+".join(map(re.escape, message.split()))
        assert re.search(words, source), message
