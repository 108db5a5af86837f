"""Recipes, data and networks of the user's own: trained, resumed, and executed only if named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sampa.lab.cli import main
from sampa.lab.data.digits import load_digits
from sampa.lab.training.folder import RunFolder
from sampa.lab.training.recipes import recipe_of
from sampa.lab.training.run import Run
from tests.lab.training import own_things
from tests.lab.training.runs import outcome

QUICK = ["--threads", "1", "--device", "cpu"]
OWN = ["images", "--data", "mine.py:points", "--batch-size", "32"]
Err = Callable[[], str]


@pytest.fixture
def err(capsys: pytest.CaptureFixture[str]) -> Err:
    return lambda: capsys.readouterr().err


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, with one file of theirs in it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("trap", "their_nets"):  # a test before this one may have imported its own
        monkeypatch.delitem(sys.modules, module, raising=False)
    shutil.copy(own_things.__file__, tmp_path / "mine.py")
    (tmp_path / "empty").mkdir()
    return tmp_path


def train(*arguments: str, out: str = "run") -> int:
    return main(["train", *arguments, *QUICK, "--out", out])


def saved(out: str = "run") -> dict[str, Any]:
    return json.loads(Path(out, "run.json").read_text())["run"]


# ---- what a user may bring -------------------------------------------------------------------


def test_a_recipe_in_python_with_own_data_and_network_resumes_to_the_same_bits() -> None:
    """The data set draws from Python's and torch's generators."""
    assert train("mine.py:mine") == 0
    assert train("mine.py:mine", "--limit-steps", "5", out="cut") == 0  # in the second epoch
    assert train("mine.py:mine", "--resume", out="cut") == 0
    assert outcome(Path("cut"), 8) == outcome(Path("run"), 8)
    result = RunFolder(Path("run")).result()
    assert result is not None
    assert result.test["accuracy"] > 85


@pytest.mark.slow
@pytest.mark.dist
def test_a_recipe_of_ones_own_on_two_processes_equals_one_bit_for_bit() -> None:
    own = ("mine.py:mine", "--method", "sampa")
    assert train(*own, out="one") == 0
    command = [sys.executable, "-m", "sampa", "train", *own, *QUICK, "--devices", "2"]
    done = subprocess.run([*command, "--out", "two"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert outcome(Path("two"), 8) == outcome(Path("one"), 8)


def test_run_json_has_path_and_hash_of_all_that_is_the_users_own(here: Path) -> None:
    assert train("mine.py:mine", "--limit-steps", "1") == 0
    sources = saved()["sources"]
    assert set(sources) == {"recipe", "data", "model"}
    assert {s["path"] for s in sources.values()} == {str(here / "mine.py")}
    assert len({s["sha256"] for s in sources.values()}) == 1
    assert train("digits-cpu", "--limit-steps", "1", out="ours") == 0
    assert saved("ours")["sources"] == {}


def test_a_changed_file_is_noticed_before_a_run_goes_on(here: Path, err: Err) -> None:
    assert train(*OWN, "--model", "mine.py:Net", "--limit-steps", "1") == 0
    with (here / "mine.py").open("a") as file:
        file.write("# another thought\n")
    assert train(*OWN, "--model", "mine.py:Net", "--limit-steps", "2", "--resume") == 1
    assert "sources.data.sha256 must be as in run/run.json" in err()
    more = ["--limit-steps", "2", "--resume", "--allow-changes"]
    assert train(*OWN, "--model", "mine.py:Net", *more) == 0


def photos(folder: Path, number: int = 40, parts: tuple[str, ...] = ("",)) -> Path:
    """Zeros and ones of the digits, as image files in a folder a class."""
    digits = load_digits("train")
    for part in parts:
        for label, name in enumerate(("zero", "one")):
            place = folder / part / name
            place.mkdir(parents=True)
            for i in np.flatnonzero(digits.labels == label)[:number]:
                Image.fromarray(digits.images[i, 0]).resize((20, 20)).save(place / f"{i}.png")
    return folder


def test_a_folder_of_images_is_trained_on_and_evaluated(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos(here / "photos")
    given = ["--data", "folder:photos", "--size", "16", "--epochs", "2", "--batch-size", "16"]
    assert train("images", *given, "--method", "sam") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    run = Run.from_json(saved())
    assert (run.data.name, run.data.size, run.model.name) == ("folder:photos", 16, "conv3")
    assert main(["eval", "run"]) == 0  # a folder is read, not executed: no need to name it again
    told = capsys.readouterr().out
    assert last.split("test ")[1].split(" (")[0] in told
    for file in (here / "photos" / "one").iterdir():
        file.write_bytes(b"no image")
    assert main(["eval", "run"]) == 1
    told = capsys.readouterr()
    assert "photos is not what the run was made with" in told.out
    assert ".png cannot be decoded as JPEG or PNG" in told.err


def test_a_json_recipe_derives_from_ours(here: Path) -> None:
    Path("own.json").write_text('{"like": "digits-cpu", "epochs": 1, "data": {"subset": 200}}')
    run = recipe_of("own.json")
    assert (run.name, run.epochs, run.data.subset) == ("own", 1, 200)
    assert run.data.label_noise == recipe_of("digits-cpu").data.label_noise
    assert train("own.json", "--limit-steps", "1") == 0
    assert saved()["sources"]["recipe"]["path"] == str(here / "own.json")


def test_a_module_is_found_in_the_current_folder(here: Path) -> None:
    shutil.copy(here / "mine.py", here / "their_nets.py")
    assert train("mine.py:mine", "--model", "their_nets:Net", "--limit-steps", "1") == 0
    assert saved()["model"] == {"name": "their_nets:Net", "options": {"width": 5}}


@pytest.mark.slow
def test_compare_takes_own_data_and_network(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--data", "mine.py:points", "--model", "mine.py:Net"]
    grid = ["--methods", "sgd", "sampa", "--seeds", "1", "--extra=--epochs 1 --batch-size 32"]
    assert main(["compare", "images", *own, *grid]) == 0
    out = capsys.readouterr().out
    assert "sgd seed 0: done" in out
    assert "sampa seed 0: done" in out


def reviews(folder: Path) -> None:
    """A data set and a model folder of Hugging Face, as its packages write them."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "good", "bad", "film", "book"]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]")
    tokenizer.save_pretrained(folder / "bert")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig.from_dict({**sizes, "vocab_size": len(words), "num_labels": 5})
    BertForSequenceClassification(config).save_pretrained(folder / "bert")
    texts = [f"{word} {what}" for word in ("good", "bad") for what in ("film", "book")] * 40
    labels = ["liked" if text.startswith("good") else "not" for text in texts]
    Dataset.from_dict({"text": texts, "label": labels}).save_to_disk(folder / "set")


@pytest.mark.slow
def test_a_data_set_and_a_model_of_hugging_face(here: Path, err: Err) -> None:
    """The head is for another number of classes, and is replaced."""
    reviews(here)
    given = ["--data", "hf:set", "--model", "hf:bert", "--lr", "0.01", "--epochs", "10"]
    assert train("text", *given) == 0
    result = RunFolder(Path("run")).result()
    assert result is not None
    assert result.test["accuracy"] == 100
    assert set(saved()["sources"]) == {"data", "model"}
    assert main(["eval", "run"]) == 1
    assert "name it yourself: --model hf:bert" in err()
    assert main(["eval", "run", "--model", "hf:bert"]) == 0


# ---- nothing is executed that the user did not name ------------------------------------------

TRAP = "from pathlib import Path\nPath('executed').touch()\n"


def trapped_run(**names: str) -> Path:
    """The folder of a finished run whose run.json now names a file that leaves a trace."""
    assert train("digits-cpu", "--epochs", "1", "--limit-steps", "1") == 0
    Path("trap.py").write_text(Path("mine.py").read_text() + TRAP)
    file = Path("run/run.json")
    values = json.loads(file.read_text())
    for role, name in names.items():
        values["run"][role]["name"] = name
    values["run"]["select"] = "last"
    file.write_text(json.dumps(values))
    return Path("run")


@pytest.mark.parametrize("name", ["trap.py:Net", "trap:Net"])
@pytest.mark.parametrize("role", ["model", "data"])
def test_code_that_a_run_json_names_is_not_executed(role: str, name: str, err: Err) -> None:
    folder = trapped_run(**{role: name})
    assert main(["eval", str(folder)]) == 1
    message = f"the {role} of the run is {name!r}, and a file is not trusted to name"
    assert message in err()
    assert train(str(folder / "run.json"), out="again") == 1
    assert message in err()
    assert train("digits-cpu", "--epochs", "1", "--resume") == 1  # names neither
    assert f"{role}.name must be as in" in err()
    assert main(["report", str(folder), "-o", "report.html"]) in (0, 1)
    assert main(["compare", str(folder / "run.json"), "--seeds", "1", "--methods", "sam"]) == 1
    assert not Path("executed").exists()
    assert main(["eval", str(folder), f"--{role}", name]) == 1  # named: now it is
    assert Path("executed").exists()


def test_a_model_folder_that_a_run_json_names_is_not_read(err: Err) -> None:
    trapped_run(model="hf:somewhere")
    assert main(["eval", "run"]) == 1
    assert "name it yourself: --model hf:somewhere" in err()


@pytest.mark.parametrize("role", ["model", "data"])
def test_code_that_a_json_recipe_names_is_not_executed(role: str, err: Err) -> None:
    Path("trap.py").write_text(TRAP)
    recipe = {"like": "digits-cpu", role: {"name": "trap.py:Net"}}
    Path("own.json").write_text(json.dumps(recipe))
    assert train("own.json") == 1
    assert f"name it yourself: --{role} trap.py:Net" in err()
    Path("own.json").write_text(json.dumps(recipe | {"from_file": False}))
    assert train("own.json") == 1  # nor does a file say that it is none
    assert "field of own.json must be a known name, got 'from_file'" in err()
    assert not Path("executed").exists()


# ---- errors ----------------------------------------------------------------------------------

ERRORS = {
    "no such file": (["nothing.py:mine"], "the file nothing.py does not exist"),
    "no function": (["mine.py:mines"], "did you mean 'mine'"),
    "no name": (["mine.py"], "named with its function, mine.py:FUNCTION"),
    "not callable": (["mine.py:VALUE"], "recipe must be a function or a class"),
    "no run": (["mine.py:no_data"], "mine.py:no_data must return a sampa.lab.training.run.Run"),
    "fails": (["mine.py:failing"], "mine.py:failing failed: KeyError: 'rate' (mine.py, line "),
    "no module": (["nowhere.nets:mine"], "the module nowhere.nets cannot be imported"),
    "no recipe": (["digits-cp"], "did you mean 'digits-cpu'"),
    "no data": (["images", "--data", "digit"], "your own is named as folder:PATH"),
    "no folder": (["images", "--data", "folder:photo"], "the folder photo, which does not exist"),
    "no classes": (["images", "--data", "folder:empty"], "must have a folder for each class"),
    "no pair": (["images", "--data", "mine.py:no_data"], "must return two data sets, (train, t"),
    "option": (["mine.py:mine", "--model", "mine.py:Needs"], "option of mine.py:Needs must be"),
    "arguments": ([*OWN, "--model", "mine.py:Needs"], "mine.py:Needs needs depth, and sampa gives"),
    "outputs": ([*OWN, "--model", "mine.py:three_outputs"], "logits of shape (32, 2), one row per"),
    "no network": (["images", "--model", "mine.py:no_network"], "must make a torch.nn.Module, got"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_is_wrong(case: str, err: Err) -> None:
    arguments, message = ERRORS[case]
    assert train(*arguments) in (1, 2)  # 2 where the name itself is wrong
    (line,) = err().splitlines()
    assert message in line
