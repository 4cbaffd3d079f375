"""Execute notebooks so that a second run gives the same bytes, and lint them.

    python tests/tools/notebooks.py notebooks/07*.ipynb          execute and write
    python tests/tools/notebooks.py --check notebooks/*.ipynb    execute; exit 1 if a file would change
    python tests/tools/notebooks.py --lint notebooks/*.ipynb     look, do not execute; exit 1 on findings
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from course_lib.classroom.teaching.answered import WIDGET_VIEW

sys.path.insert(0, str(Path(__file__).parents[1] / "no_network"))
import no_network

METADATA = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"}}
CELL_NOISE = ("execution", "collapsed", "scrolled", "ExecuteTime", "jp-MarkdownHeadingCollapsed")
MAX_BYTES, MAX_LINES, MOST_LINES = 400_000, 30, 20
CODE_CELLS, WORDS, MEDIAN_LINES = (25, 46), (1_800, 3_250), (4, 8)


def execute(path: Path, timeout_s: int = 300) -> NotebookNode:
    """A copy of the notebook with the outputs of a fresh kernel, which has no network and an empty HOME.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed, and is not tagged `raises-exception`.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=timeout_s, kernel_name="python3", record_timing=False,
                            resources={"metadata": {"path": str(path.parent)}})
    with tempfile.TemporaryDirectory(prefix="course-home-", ignore_cleanup_errors=True) as home:
        client.execute(env=os.environ | no_network.environment(Path(home)))
    return notebook


def normalize(notebook: NotebookNode) -> NotebookNode:
    """Remove, in place, what differs between two runs of the same code: timings, ids of widgets, chunks."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{index:02}")
        for key in CELL_NOISE:
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            cell.outputs = join_streams(cell.outputs)
            for output in cell.outputs:
                if len(output.get("data", {})) > 1:
                    output.data.pop(WIDGET_VIEW, None)
    return notebook


def join_streams(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Neighbouring chunks of one stream as one output; where they were cut depends on timing."""
    joined: list[NotebookNode] = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == last.get("output_type") == "stream" and output.name == last["name"]:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def lint(path: Path) -> list[str]:
    """What the notebook breaks of the rules that a program can see, one line for each finding."""
    notebook = read_as_is(path)
    findings = [*lint_file(path, notebook), *lint_lengths(notebook)]
    for index, cell in enumerate(notebook.cells):
        findings += [f"cell {index}: {finding}" for finding in lint_cell(cell)]
    return findings


def read_as_is(path: Path) -> NotebookNode:
    """The notebook, without the repairs that `nbformat.read` does."""
    return nbformat.reader.reads(path.read_text())


def lint_file(path: Path, notebook: NotebookNode) -> Iterator[str]:
    """Findings about the file as a whole."""
    if path.stat().st_size >= MAX_BYTES:
        yield f"{path.stat().st_size:,} bytes, must be below {MAX_BYTES:,}"
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield f"format {notebook.nbformat}.{notebook.nbformat_minor}, must be 4.5, which has cell ids"
    if notebook.metadata != METADATA:
        extra = sorted(set(notebook.metadata) - set(METADATA))
        yield f"metadata other than {METADATA}; besides: {extra}"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "cell ids are missing or not unique"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    if counts != list(range(1, len(counts) + 1)):
        yield f"execution counts are {counts}, must be 1 to {len(counts)}: run all in a fresh kernel"


def lint_lengths(notebook: NotebookNode) -> Iterator[str]:
    """Findings about how much there is to read."""
    lengths = code_lengths(notebook)
    if not CODE_CELLS[0] <= len(lengths) <= CODE_CELLS[1]:
        yield f"{len(lengths)} code cells, must be {CODE_CELLS[0]} to {CODE_CELLS[1]}"
    if not WORDS[0] <= (words := count_words(notebook)) <= WORDS[1]:
        yield f"{words:,} words, must be {WORDS[0]:,} to {WORDS[1]:,}"
    long = [length for length in lengths if length > MOST_LINES]
    if len(long) > 0.1 * len(lengths):
        yield f"{len(long)} of {len(lengths)} code cells are over {MOST_LINES} lines, at most a tenth may be"


def lint_cell(cell: NotebookNode) -> Iterator[str]:
    """Findings about one cell."""
    if noise := [key for key in CELL_NOISE if key in cell.metadata]:
        yield f"metadata of one run or one viewer: {noise}"
    if cell.cell_type == "markdown":
        yield from lint_images(cell.source)
        return
    if (lines := len(cell.source.splitlines())) > MAX_LINES:
        yield f"{lines} lines, must be at most {MAX_LINES}"
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            yield f"the saved output is an error, {output.ename}: {output.evalue}"
        if output.get("name") == "stderr":
            yield f"the saved output holds stderr: {output.text[:80]!r}"
        data = output.get("data", {})
        if WIDGET_VIEW in data:
            yield "a widget view is saved, and its model is not: re-opened, it shows an error"
        yield from lint_images("".join(data.get("text/html", "")))
        for kind in ("image/png", "image/jpeg", "image/svg+xml"):
            if kind in data and not output.metadata.get(kind, {}).get("alt"):
                yield f"a figure ({kind}) without alt text in its output's metadata"


def lint_images(text: str) -> Iterator[str]:
    """Images and drawings in Markdown or HTML that say nothing to who cannot see them."""
    if re.search(r"!\[\s*\]\(", text) or re.search(r"<img\b(?![^>]*\balt=[\"'][^\"'])[^>]*>", text):
        yield "an image without alt text"
    for svg in re.findall(r"<svg\b[^>]*>", text):
        if "aria-label" not in svg and "aria-hidden" not in svg:
            yield "an svg without aria-label"


def code_lengths(notebook: NotebookNode) -> list[int]:
    """Lines of each code cell."""
    return [len(cell.source.splitlines()) for cell in notebook.cells if cell.cell_type == "code"]


def count_words(notebook: NotebookNode) -> int:
    """Words of the Markdown cells, without tags, code fences, pictures and the addresses of links."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"```.*?```|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|</?\w[^>]*>", " ", text, flags=re.S)
    return len(re.findall(r"\w[\w'’.,-]*", text))


def summary(path: Path) -> str:
    """One line of sizes, with a warning where the median cell is longer or shorter than intended."""
    notebook = read_as_is(path)
    lengths = code_lengths(notebook)
    median = statistics.median(lengths) if lengths else 0
    remark = "" if MEDIAN_LINES[0] <= median <= MEDIAN_LINES[1] else f" (meant: {MEDIAN_LINES})"
    return (f"{path}: {len(lengths)} code cells, median {median:g} lines{remark}, "
            f"{count_words(notebook):,} words, {path.stat().st_size / 1000:.0f} kB")


def lint_command(path: Path) -> bool:
    """Print what `lint` finds; True if there is nothing."""
    findings = lint(path)
    print("\n  ".join([summary(path), *findings]))
    return not findings


def execute_command(path: Path, check: bool) -> bool:
    """Execute and write; or, to check, only compare. True if the file holds what the run gave."""
    start = time.perf_counter()
    text = nbformat.writes(normalize(execute(path))) + "\n"
    same = path.read_text() == text
    if not check and not same:
        path.write_text(text)
    verdict = "same" if same else "DIFFERS" if check else "written"
    print(f"{path}: {verdict}, {time.perf_counter() - start:.1f} s", flush=True)
    return same or not check


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 if every notebook is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="execute, compare, write nothing")
    parser.add_argument("--lint", action="store_true", help="report on the files as they are")
    parser.add_argument("notebooks", nargs="+", type=Path)
    options = parser.parse_args(argv)
    if options.lint:
        return int(not all([lint_command(path) for path in options.notebooks]))
    return int(not all([execute_command(path, options.check) for path in options.notebooks]))


if __name__ == "__main__":
    sys.exit(main())
