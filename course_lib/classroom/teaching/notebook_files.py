"""Where the notebooks are, by number."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.classroom.checks import notebooks
from course_lib.command_line import UsageError

CHECKOUT = Path(__file__).parents[3]  # the repository, where the course is installed from one


def notebook_files(folder: Path) -> dict[str, Path]:
    """The notebooks of the course in a folder, by number: `{"03": Path("03_attention.ipynb")}`.

    Copies that somebody has made, such as `03_attention.before_reset_1.ipynb`, do not count.
    """
    found = {path.name[:2]: path for path in sorted(folder.glob("*.ipynb")) if re.fullmatch(r"\d\d_\w+", path.stem)}
    return {number: found[number] for number in notebooks() if number in found}


def notebook_file(number: str, *folders: Path) -> Path:
    """The file of a notebook, in the first of the folders that has it.

    Args:
        number: two digits, `00` to `17`.
        folders: where to look; if none is given, the current directory and then the repository's notebooks.

    Raises:
        UsageError: there is no such notebook, or none of the folders holds it.
    """
    if number not in notebooks():
        raise UsageError(f"notebook = {number!r} is not allowed: must be one of {', '.join(notebooks())}")
    folders = folders or (Path.cwd(), CHECKOUT / "notebooks")
    for folder in folders:
        if path := notebook_files(folder).get(number):
            return path
    raise UsageError(f"no notebook {number} in {' or '.join(map(str, folders))}: "
                     "run this where the notebooks are, or in the repository")


def read_notebook(path: Path) -> NotebookNode:
    """A notebook, as format 4.

    Raises:
        UsageError: the file is no notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, nbformat.ValidationError) as error:
        raise UsageError(f"{path} is no notebook: {str(error).splitlines()[0]}") from error
