"""Notebooks run to their end with every exercise answered: the edition with the solutions."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from whole_notebooks import notebook_of

from course_lib.classroom.checks import exercises_of, notebooks
from course_lib.classroom.teaching.answered import answered, execute, exercise_id, printed, require_right


@pytest.mark.parametrize("number", notebooks())
def test_with_every_exercise_answered_a_notebook_runs_on_the_answers(number):
    notebook, known = answered(nbformat.read(notebook_of(number), as_version=4)), exercises_of(number)
    names = ", ".join(e.finished.__name__ for e in known)
    notebook.cells.append(new_code_cell(f"print(*(f.__module__ for f in ({names},)))"))
    *cells, modules = execute(notebook).cells
    require_right(notebook, number)
    for e in known:
        name = e.finished.__name__
        [text] = [printed(cell) for cell in cells if exercise_id(cell) == e.id]
        assert text == f"Exercise {e.id} is right: the rest of the notebook runs on your {name}.\n"
    assert printed(modules).split() == ["__main__"] * len(known)
    text = "".join(printed(cell) for cell in cells if cell.cell_type == "code")
    assert f"Notebook {number}: {len(known)} of {len(known)} done\n" in text
