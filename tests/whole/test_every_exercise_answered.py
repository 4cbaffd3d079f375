"""Notebooks run to their end with every exercise answered by the reader."""

import ast
import importlib
import inspect

import nbformat
import pytest
from mutants import marked
from nbformat.v4 import new_code_cell
from whole_notebooks import notebook_of, printed

import notebooks as tool
from course_lib.classroom.checks import exercises_of


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
