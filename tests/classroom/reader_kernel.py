"""A reader who has typed the printed solution into every exercise cell, in a Jupyter kernel of their own."""

import ast
import inspect
import os
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from course_lib.classroom.answers import answer

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def cells_of(path):
    """What a reader runs of a notebook: its imports and definitions, and the exercises with their solutions."""
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type != "code":
            continue
        if found := re.search(r'@exercise\("([\d.]+)"\)', cell.source):
            yield f'@exercise("{found[1]}")\n{inspect.getsource(answer(found[1])).rstrip()}'
            continue
        kept = [ast.get_source_segment(cell.source, node) for node in ast.parse(cell.source).body
                if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
                and "course_lib.display" not in ast.unparse(node)]
        if kept:
            yield "\n".join(kept)


def type_cells(progress, *cells, **environment):
    """Run these cells in a new kernel, the answers kept beside this progress file; what the cells printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    before = dict(os.environ)
    os.environ.update(COURSE_PROGRESS=str(progress), **environment)
    try:
        NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]


def solve_everything(progress):
    """Type the solutions of all notebooks; what was printed."""
    cells = []
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        cells += ["%reset -f", *cells_of(path)]
    return type_cells(progress, *cells)
