"""`python -m course_lib class student DIR`, `solutions DIR`, `reset 03`: the notebooks in other forms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.classroom.answers import answer
from course_lib.classroom.checks import exercises_of, notebooks
from course_lib.classroom.teaching.answered import answered, execute, exercise_id, require_right
from course_lib.classroom.teaching.edition_folder import EditionFolder, open_folder
from course_lib.classroom.teaching.notebook_files import notebook_file
from course_lib.classroom.teaching.pristine import PRISTINE, pristine, reset
from course_lib.command_line import Parser, UsageError

__all__ = ["reset", "solutions", "student"]

START = """\
Notebooks of the course "How a language model generates text"

Type these in this folder, with the Python in which the course is installed.

    python -m course_lib doctor              is the installation whole?
    python -m jupyterlab .                   opens the notebooks; begin with
                                             {first}
    python -m course_lib class reset {number}      puts a notebook back as it was

After a reset, yours is still there, under another name, and your progress is kept.
"""


def unworked(number: str, folder: Path) -> tuple[str, NotebookNode, str]:
    """A notebook as it was set: its file's name, its content, and a remark on where that is from, often empty.

    Where neither `.pristine` nor git has it, the present file is taken, provided that its exercises are open.

    Raises:
        UsageError: nobody has it as it was, and the present file has been worked on.
    """
    try:
        path, content, origin = pristine(number, folder)
    except UsageError:
        path = notebook_file(number, folder)
        content, origin = path.read_bytes(), ""
    notebook = nbformat.reads(content.decode(), as_version=4)
    if worked := [exercise for cell in notebook.cells if (exercise := exercise_id(cell)) and not open_stub(cell)]:
        raise UsageError(f"{path} has been worked on (exercise {worked[0]}), and there is no copy of it as it was")
    edited = path.exists() and path.read_bytes() != content
    return path.name, notebook, f"as {origin} has it, without later changes" if edited and origin else ""


def open_stub(cell: NotebookNode) -> bool:
    """Whether the cell of an exercise still ends with `...`, and has nothing of an answer."""
    return cell.source.rstrip().endswith("...") and f"def {answer(exercise_id(cell)).__name__}(" in cell.source


def without_outputs(notebook: NotebookNode) -> NotebookNode:
    """Remove, in place, what cells gave and the order in which they ran; returns it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def put_images(edition: EditionFolder, folder: Path) -> None:
    """The pictures that the notebooks show."""
    for path in sorted(folder.glob("images/*")):
        edition.put(f"images/{path.name}", path.read_bytes())


def student_edition(numbers: Sequence[str], edition: EditionFolder) -> None:
    """Write notebooks as students get them, with copies in `.pristine`, and say what was done.

    Raises:
        UsageError: a notebook is missing, or is not as it was set.
        OSError: a file cannot be written.
    """
    sources = [(number, notebook_file(number).parent) for number in numbers]
    taken = [(number, folder, *unworked(number, folder)) for number, folder in sources]  # before anything is written
    for _, _, name, notebook, remark in taken:
        text = nbformat.writes(without_outputs(notebook)) + "\n"
        edition.put(f"{PRISTINE}/{name}", text)
        done = edition.put(name, text)
        remarks = [remark] if remark else []
        if done == "kept":
            remarks.append("left alone, since somebody has worked on it; `class reset` there takes the new one")
        elif done != "written":
            remarks.append(f"what was there is kept as {done}")
        print(f"{edition.folder / name}{': ' if remarks else ''}{'; '.join(remarks)}")
    for folder in dict.fromkeys(folder for _, folder, *_ in taken):
        put_images(edition, folder)
    edition.put("START.txt", START.format(first=taken[0][2], number=taken[0][0]))


def solved(number: str, folder: Path) -> tuple[str, NotebookNode]:
    """The name of a notebook, and the notebook answered, executed and found right.

    Raises:
        UsageError: an answer fails; the message names the exercise.
    """
    name, notebook, _ = unworked(number, folder)
    execute(answered(without_outputs(notebook)))
    require_right(notebook, number)
    return name, notebook


def solutions_edition(numbers: Sequence[str], edition: EditionFolder) -> None:
    """Write notebooks with every exercise answered, each as soon as it has run, and say what was done.

    Raises:
        UsageError: a notebook is missing, or an answer fails.
        OSError: a file cannot be written.
    """
    for number in numbers:
        folder, start = notebook_file(number).parent, time.perf_counter()
        name, notebook = solved(number, folder)
        done = edition.put(name, nbformat.writes(notebook) + "\n")
        remark = {"written": "", "kept": "; left alone, since somebody has changed it"}.get(done, f"; old: {done}")
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{edition.folder / name}: all {len(exercises_of(number))} exercises right, {took}{remark}", flush=True)
        put_images(edition, folder)


def student(argv: Sequence[str]) -> int:
    """The command line of `student`."""
    edition, numbers = ask("student", "Write the notebooks as students get them: pristine, without outputs.", argv)
    student_edition(numbers, edition)
    return 0


def solutions(argv: Sequence[str]) -> int:
    """The command line of `solutions`."""
    edition, numbers = ask("solutions", "Write the notebooks with every exercise answered, and executed.", argv)
    solutions_edition(numbers, edition)
    return 0


def ask(kind: str, description: str, argv: Sequence[str]) -> tuple[EditionFolder, list[str]]:
    """The folder and the notebooks that a command line names."""
    parser = Parser(prog=f"python -m course_lib class {kind}", description=description)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder, or one with an earlier edition")
    parser.add_argument("--notebooks", nargs="+", metavar="03", default=notebooks(), help="only these; default: all")
    parser.add_argument("--force", action="store_true",
                        help="also where DIR holds something else; files of the same name are kept under another")
    options = parser.parse_args(argv)
    for number in options.notebooks:
        notebook_file(number)
    return open_folder(options.folder, kind, force=options.force), list(options.notebooks)
