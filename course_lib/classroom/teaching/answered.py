"""A notebook with every exercise answered, executed and proved: the solutions edition."""

from __future__ import annotations

import ast
import inspect
import os
import re
import tempfile
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lib.classroom.answers import answer
from course_lib.classroom.checks import exercises_of
from course_lib.command_line import UsageError

SECONDS = 600  # that a cell may take
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # names a model that ends with the kernel


def exercise_id(cell: NotebookNode) -> str | None:
    """The exercise whose stub a cell holds, such as `03.1`; None for any other cell."""
    found = re.match(r'@exercise\("(\d\d\.\d+)"\)', cell.source) if cell.cell_type == "code" else None
    return found[1] if found else None


def answer_cell(source: str, exercise: str) -> str:
    """The stub of an exercise with the answer as its body; decorator and docstring stay.

    The answer needs no imports of its own: it uses what the cells above have imported.

    Raises:
        UsageError: the cell does not hold a function with a docstring.
    """
    stub = next((node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)), None)
    if stub is None or ast.get_docstring(stub) is None:
        raise UsageError(f"the cell of exercise {exercise} must hold a function with a docstring")
    lines = source.splitlines()
    head, rest = lines[:stub.body[0].end_lineno], lines[stub.end_lineno:]
    return "\n".join([*head, *body_lines(inspect.getsource(answer(exercise))), *rest])


def body_lines(source: str) -> list[str]:
    """The lines of a function after its signature, comments included.

    >>> body_lines("def f(x):\\n    # twice\\n    return 2 * x\\n")
    ['    # twice', '    return 2 * x']
    """
    lines = source.rstrip().splitlines()
    first = ast.parse(source).body[0].body[0].lineno - 1
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return lines[first:]


def answered(notebook: NotebookNode) -> NotebookNode:
    """Put the answers into the stubs of a notebook, in place, and open what is folded in its text; returns it."""
    for cell in notebook.cells:
        if exercise := exercise_id(cell):
            cell.source = answer_cell(cell.source, exercise)
        elif cell.cell_type == "markdown":
            cell.source = re.sub(r"<details(?: open)?>", "<details open>", cell.source)
    return notebook


def execute(notebook: NotebookNode) -> NotebookNode:
    """Run a notebook in place, in a fresh kernel and an empty folder, with a progress file of its own; returns it.

    Raises:
        UsageError: a cell raised, took more than ten minutes, or ended the kernel.
    """
    with tempfile.TemporaryDirectory(prefix="course-answers-", ignore_cleanup_errors=True) as scratch:
        client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", record_timing=False,
                                store_widget_state=False, coalesce_streams=True,
                                resources={"metadata": {"path": scratch}})
        try:
            client.execute(env=os.environ | {"COURSE_PROGRESS": str(Path(scratch, "progress.json"))})
        except CellExecutionError as error:
            raise UsageError(f"{where(notebook)} raised {error.ename}: {error.evalue}") from error
        except (CellTimeoutError, DeadKernelError) as error:
            raise UsageError(f"{where(notebook)}: {str(error).splitlines()[0]}") from error
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if len(output.get("data", {})) > 1:
            output.data.pop(WIDGET_VIEW, None)
    return notebook


def where(notebook: NotebookNode) -> str:
    """The last cell that began to run, and its exercise if it is one."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    reached = next((i for i, cell in enumerate(cells) if cell.execution_count is None or failed(cell)), len(cells) - 1)
    exercise = exercise_id(cells[reached])
    return f"exercise {exercise}" if exercise else f"cell {cells[reached].get('id')}"


def failed(cell: NotebookNode) -> bool:
    """Whether a cell holds an error as its output."""
    return any(output.output_type == "error" for output in cell.outputs)


def printed(cell: NotebookNode) -> str:
    """What a code cell wrote to stdout and stderr."""
    return "".join(output.get("text", "") for output in cell.outputs)


def require_right(notebook: NotebookNode, number: str) -> None:
    """Check that the executed notebook found each of its exercises right.

    Raises:
        UsageError: an answer was refused, or an exercise has no cell; the message names it.
    """
    said = {exercise: printed(cell) for cell in notebook.cells if (exercise := exercise_id(cell))}
    for exercise in exercises_of(number):
        text = said.get(exercise.id, "there is no cell for it")
        if not text.startswith(f"Exercise {exercise.id} is right:"):
            raise UsageError(f"the answer to exercise {exercise.id} was not accepted: {text}")
