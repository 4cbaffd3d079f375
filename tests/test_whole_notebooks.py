"""Notebooks run to their end under two conditions that their saved outputs do not show.

With COURSE_MODEL set, on weights that know nothing and a tokenizer that wants a token in front of every
text; and with every exercise answered by the reader.
"""

import ast
import importlib
import inspect
import json
from pathlib import Path

import nbformat
import pytest
import torch
import transformers
from mutants import marked
from nbformat.v4 import new_code_cell
from tiny_checkpoints import LLAMA, write_tokenizer
from tokenizers import AddedToken, Tokenizer, processors

import notebooks as tool
from course_lib.checkpoint import MODELS, load
from course_lib.classroom.checks import exercises_of

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
BOS = "<|begin_of_text|>"


def notebook_of(number):
    """The path of a notebook, given its two digits."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


def printed(cell):
    """What a code cell wrote to stdout and stderr."""
    return "".join(output.get("text", "") for output in cell.outputs)


# Another model


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """A folder with a random Llama, and pocket's vocabulary behind a beginning of text as Llama 3 has it."""
    folder = tmp_path_factory.mktemp("models") / "other"
    tokenizer = Tokenizer.from_file(str(MODELS / "pocket" / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(BOS, normalized=False)])
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])])
    template = json.loads((MODELS / "pocket" / "tokenizer_config.json").read_text())["chat_template"]
    write_tokenizer(tokenizer, folder, bos_token=BOS, chat_template="{{- bos_token }}" + template)
    shape = LLAMA | {"vocab_size": bos + 1, "max_position_embeddings": 1024}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(**shape, initializer_range=1.0, bos_token_id=bos, eos_token_id=bos - 1)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_the_other_model_wants_a_token_in_front(other_model):
    tokenizer = load(other_model, device="cpu").tokenizer
    pocket = load("pocket").tokenizer
    assert tokenizer.encode_prompt("a cat") == [pocket.n_vocab, *pocket.encode("a cat")]


@pytest.mark.parametrize("number", ["00", "03", "04", "06", "07", "08", "09", "10", "11", "12", "13", "14", "16",
                                    "17"])
def test_with_another_model_a_notebook_runs_to_its_end(number, other_model, monkeypatch):
    """No cell raises, and what holds of pocket's weights alone is reported.

    Left out for the time they take, not one of them for what it does: 01 asks the model for its tokenizer,
    02 for its embedding table and 05, which trains, for three texts.
    """
    monkeypatch.setenv("COURSE_MODEL", str(other_model))
    cells = tool.execute(notebook_of(number)).cells
    text = "".join(printed(cell) for cell in cells if cell.cell_type == "code")
    assert "not asserted: these are not the weights of pocket" in text


# The reader's own answers


def answers(number):
    """A right answer to each exercise of a notebook, written in another way than the finished version."""
    return {answer.exercise_id: answer for answer in marked(importlib.import_module(f"mutants.nb{number}"))
            if not answer.words}


def answered(source, right):
    """A cell with the body of its exercise replaced by an answer's, behind the imports the answer needs."""
    stub = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    answer = right[stub.decorator_list[0].args[0].value]
    own = ast.parse(inspect.getsource(answer)).body[0]
    own.name, own.decorator_list = stub.name, stub.decorator_list
    imports = [node for node in ast.parse(inspect.getsource(inspect.getmodule(answer))).body
               if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "mutants"]
    return stub.name, "\n".join(map(ast.unparse, [*imports, own]))


@pytest.mark.parametrize("number", ["00", "03", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17"])
def test_with_every_exercise_answered_a_notebook_runs_on_the_answers(number, tmp_path, monkeypatch):
    notebook, names = nbformat.read(notebook_of(number), as_version=4), {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("@exercise("):
            name, cell.source = answered(cell.source, answers(number))
            names[name] = cell.id
    known = exercises_of(number)
    assert len(names) == len(known)
    notebook.cells.append(new_code_cell(f"print(*(f.__module__ for f in ({', '.join(names)},)))"))
    nbformat.write(notebook, tmp_path / "answered.ipynb")
    *cells, modules = tool.execute(tmp_path / "answered.ipynb").cells
    for e in known:
        name = e.finished.__name__
        [text] = [printed(cell) for cell in cells if cell.id == names[name]]
        assert text == f"Exercise {e.id} is right: the rest of the notebook runs on your {name}.\n"
    assert printed(modules).split() == ["__main__"] * len(known)
    text = "".join(printed(cell) for cell in cells if cell.cell_type == "code")
    assert f"Notebook {number}: {len(known)} of {len(known)} done\n" in text
