"""A notebook as it was set, before anybody worked on it, and putting it back."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_lib.classroom.checks import notebooks
from course_lib.classroom.teaching.notebook_files import CHECKOUT, notebook_file, notebook_files
from course_lib.classroom.whole_file import write_whole
from course_lib.command_line import Parser, UsageError

PRISTINE = ".pristine"  # a folder beside the notebooks of a student edition, with a copy of each
SECONDS = 60


def home_of(number: str) -> Path:
    """The folder whose notebook is meant: the current one if it holds it, or did; else the repository's.

    Raises:
        UsageError: there is no such notebook, or it is in neither.
    """
    here = Path.cwd()
    return here if number in notebook_files(here / PRISTINE) else notebook_file(number).parent


def pristine(number: str, folder: Path, source: Path | None = None) -> tuple[Path, bytes, str]:
    """A notebook of a folder as it was.

    Args:
        source: another folder, to take it from; else `.pristine` in the folder is asked, and then git.

    Returns:
        Where it belongs, its content, and where that is from.

    Raises:
        UsageError: nobody has it, or what they have is no notebook.
    """
    kept = notebook_files(folder / PRISTINE)
    if source is not None:
        path = notebook_file(number, source)
        name, content, origin = path.name, path.read_bytes(), str(path)
    elif number in kept:
        name, content, origin = kept[number].name, kept[number].read_bytes(), str(kept[number])
    else:
        name = notebook_file(number, folder).name
        content, origin = committed(folder / name), "git"
    try:
        nbformat.reads(content.decode(), as_version=4)
    except (ValueError, nbformat.ValidationError) as error:
        raise UsageError(f"{origin} holds no notebook {number}: {str(error).splitlines()[0]}") from error
    return folder / name, content, origin


def committed(path: Path) -> bytes:
    """A file as the last commit of its repository has it.

    Raises:
        UsageError: git does not know it; the message says what else can be done.
    """
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
    except FileNotFoundError:
        reason = "git is not installed"
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines()[0]
    except subprocess.TimeoutExpired:
        reason = f"git did not answer in {SECONDS} seconds"
    else:
        return done.stdout
    raise UsageError(f"no copy of {path.name} as it was: there is no folder {PRISTINE} beside it, and {reason}; "
                     "name a folder that has one: --from FOLDER")


def set_aside(path: Path, occasion: str) -> Path:
    """Keep a file under the next free name beside it, `03_attention.before_reset_1.ipynb`; returns that name.

    Raises:
        OSError: the copy cannot be written.
    """
    number = 1
    while True:
        copy = path.with_name(f"{path.stem}.{occasion}_{number}{path.suffix}")
        try:
            with open(copy, "xb") as file:
                file.write(path.read_bytes())
            return copy
        except FileExistsError:
            number += 1


def put_back(number: str, folder: Path, source: Path | None = None) -> str:
    """Put a notebook back as it was; the present one is kept beside it. Returns one line that says what was done.

    Raises:
        UsageError: there is no copy of it as it was.
        OSError: a file cannot be read or written; the present notebook stands as it did.
    """
    path, content, origin = pristine(number, folder, source)
    name = path.name if path.parent.resolve() == Path.cwd() else path  # which of several, if it is not here
    if not path.exists():
        write_whole(path, content)
        return f"{name} was gone and is back (from {origin})"
    if path.read_bytes() == content:
        return f"{name} is as it was (compared with {origin}): nothing to do"
    copy = set_aside(path, "before_reset")
    write_whole(path, content)
    return f"{name} is as it was (from {origin}); yours is kept as {copy.name}"


def reset(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(prog="python -m course_lib class reset", description="Put notebooks back as they were.")
    parser.add_argument("notebooks", nargs="*", metavar="03", help="numbers of notebooks")
    parser.add_argument("--all", action="store_true", help="all notebooks that there are")
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER",
                        help=f"take them from there; else from {PRISTINE} beside the notebook, or from git")
    options = parser.parse_args(argv)
    if bool(options.notebooks) == options.all:
        parser.error("name a notebook, such as 03, or --all")
    for number in options.notebooks or present():
        print(put_back(number, home_of(number), options.source))
    print("Your progress is kept. In an open JupyterLab: File → Reload Notebook from Disk.")
    return 0


def present() -> Sequence[str]:
    """Numbers of the notebooks that `--all` means: those here, or else those of the repository."""
    here = Path.cwd()
    found = {**notebook_files(here), **notebook_files(here / PRISTINE)} or notebook_files(CHECKOUT / "notebooks")
    return [number for number in notebooks() if number in found]
