"""Every committed notebook keeps the rules a program can check; and the lint and the executor work."""

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import notebooks as tool

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS, "notebooks/ is empty: nothing would be tested"
    assert NOTEBOOKS[0].name.startswith("00_")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_notebook(path):
    print(tool.summary(path))
    assert tool.lint(path) == []


def sound_notebook():
    """A notebook without findings: 30 code cells with counts and outputs, and 2,000 words."""
    cells = [new_markdown_cell("word " * 2_000 + "![a cat](cat.png)")]
    for count in range(1, 31):
        cells.append(new_code_cell("x = 1\n" * 5, execution_count=count))
    cells[1].outputs = [new_output("stream", name="stdout", text="one")]
    cells[2].outputs = [new_output("display_data", {"image/png": "iVBORw0KGgo="},
                                   metadata={"image/png": {"alt": "a line that rises"}})]
    return new_notebook(cells=cells, metadata=nbformat.from_dict(tool.METADATA))


def lint_of(tmp_path, notebook):
    path = tmp_path / "test.ipynb"
    path.write_text(json.dumps(notebook))
    return tool.lint(path)


def test_lint_accepts_a_sound_notebook(tmp_path):
    assert lint_of(tmp_path, sound_notebook()) == []


def code(notebook, number=3):
    return notebook.cells[number]


BREAK = {
    "execution counts": lambda nb: code(nb).update(execution_count=None),
    "cell ids": lambda nb: code(nb).update(id=nb.cells[1].id),
    "besides: ['widgets']": lambda nb: nb.metadata.update(widgets={}),
    "metadata of one run": lambda nb: code(nb).metadata.update(execution={"iopub.status.busy": "1"}),
    "must be below 400,000": lambda nb: nb.cells[1].outputs[0].update(text="a" * 400_000),
    "31 lines, must be at most 30": lambda nb: code(nb).update(source="x = 1\n" * 31),
    "4 of 30 code cells are over 20 lines": lambda nb: [cell.update(source="x = 1\n" * 21)
                                                       for cell in nb.cells[5:9]],
    "24 code cells": lambda nb: nb.cells.__delitem__(slice(25, None)),
    "1,600 words": lambda nb: nb.cells[0].update(source="word " * 1_600 + "![a cat](cat.png)"),
    "3,251 words": lambda nb: nb.cells[0].update(source="word " * 3_251 + "![a cat](cat.png)"),
    "the saved output is an error": lambda nb: code(nb).outputs.append(
        new_output("error", ename="ValueError", evalue="no", traceback=[])),
    "the saved output holds stderr": lambda nb: code(nb).outputs.append(
        new_output("stream", name="stderr", text="UserWarning")),
    "a widget view is saved": lambda nb: code(nb).outputs.append(
        new_output("display_data", {tool.WIDGET_VIEW: {"model_id": "0"}, "text/plain": "Slider()"})),
    "an image without alt text": lambda nb: nb.cells[0].update(source="word " * 2_000 + "![](cat.png)"),
    "an image without alt": lambda nb: nb.cells[0].update(source="word " * 2_000 + '<img src="c" alt="">'),
    "an svg without": lambda nb: code(nb).outputs.append(
        new_output("display_data", {"text/html": "<svg width='3'></svg>"})),
    "a figure (image/png) without alt text": lambda nb: nb.cells[2].outputs[0].update(metadata={}),
}


@pytest.mark.parametrize("finding", BREAK)
def test_lint_finds(finding, tmp_path):
    notebook = sound_notebook()
    BREAK[finding](notebook)
    findings = [found for found in lint_of(tmp_path, notebook) if not found.startswith("execution counts")
                or finding == "execution counts"]
    assert len(findings) == 1 and finding in findings[0], findings


def write_source(path, *sources):
    cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    path.write_text(nbformat.writes(new_notebook(cells=cells)))


def test_execution_is_repeatable_and_joins_streams(tmp_path, capsys):
    path = tmp_path / "run.ipynb"
    write_source(path, "import sys\nfor i in range(3):\n    print(i)\n    sys.stdout.flush()", "2 ** 10")
    assert tool.main([str(path)]) == 0
    written = path.read_bytes()
    notebook = nbformat.reads(written.decode(), 4)
    assert [cell.execution_count for cell in notebook.cells] == [1, 2]
    assert [output.text for output in notebook.cells[0].outputs] == ["0\n1\n2\n"]
    assert notebook.cells[1].outputs[0].data == {"text/plain": "1024"}
    assert tool.main(["--check", str(path)]) == 0
    assert "same" in capsys.readouterr().out
    path.write_bytes(written.replace(b"1024", b"1025"))
    assert tool.main(["--check", str(path)]) == 1
    assert b"1025" in path.read_bytes(), "--check must not write"


VERSIONED = {"name": "python", "version": "3.11.7"}


def test_normalize_strips_widget_views_that_have_a_picture():
    data = {tool.WIDGET_VIEW: {"model_id": "f00"}, "text/plain": "Slider()", "image/png": "iVBORw0KGgo="}
    cell = new_code_cell("s", outputs=[new_output("display_data", data)], metadata={"execution": {}})
    notebook = new_notebook(cells=[cell], metadata={"widgets": {}, "language_info": VERSIONED})
    tool.normalize(notebook)
    assert set(notebook.cells[0].outputs[0].data) == {"text/plain", "image/png"}
    assert notebook.cells[0].metadata == {} and notebook.metadata == tool.METADATA


def test_a_kernel_has_no_network(tmp_path):
    path = tmp_path / "out.ipynb"
    write_source(path, "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), timeout=5)\n"
                       "except RuntimeError as error:\n    print(type(error).__name__)")
    [output] = tool.execute(path).cells[0].outputs
    assert output.text == "NetworkBlockedError\n"
