"""What lies in the folder of submissions: who sent in which notebooks. Links are not followed, and names may be odd."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.classroom.teaching.grading.program import UnreadableNotebook
from course_lib.command_line import UsageError

SUFFIX = ".ipynb"
MOST_BYTES, MOST_NOTEBOOKS, MOST_LEVELS = 50 << 20, 40, 4  # of a notebook; of a student; of folders in a student's
SKIPPED = (".ipynb_checkpoints", "__MACOSX")


@dataclass
class Submission:
    """What one student sent in.

    Attributes:
        student: the name of the file without `.ipynb`, or of the folder.
        files: notebooks, in order of their names.
        problems: what was not taken, in words.
    """

    student: str
    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_submissions(folder: Path) -> list[Submission]:
    """The submissions in a folder, in order of their names.

    Where a file and a folder, or two spellings of one name, would be the same student, each keeps the whole
    name of its entry, `.ipynb` included, so that they differ.

    Raises:
        UsageError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is no folder: give the one that holds ada.ipynb, bob.ipynb or a folder for "
                         "each student")
    found = [one for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
             if (one := submission_of(entry)) is not None]
    if not found:
        raise UsageError(f"{str(folder)!r} holds no notebook and no folder of a student's")
    times = Counter(plain(submission.student) for submission, _ in found)
    for submission, name in found:
        if times[plain(submission.student)] > 1:
            submission.student = name
    return [submission for submission, _ in found]


def submission_of(entry: os.DirEntry) -> tuple[Submission, str] | None:
    """What an entry of the folder is, and its name; None for what is no submission."""
    if entry.name.startswith(".") or entry.name in SKIPPED:
        return None
    name = entry.name
    if entry.is_symlink():
        student = name.removesuffix(SUFFIX)
        return Submission(student, problems=[f"{name} is a symbolic link, which is not followed"]), name
    if entry.is_dir(follow_symlinks=False):
        submission = Submission(name)
        collect(Path(entry.path), submission, MOST_LEVELS)
        if not submission.files:
            submission.problems.append("the folder holds no notebook")
        return submission, f"{name}/"
    if not name.endswith(SUFFIX):
        return None
    submission = Submission(name.removesuffix(SUFFIX))
    take(Path(entry.path), submission)
    return submission, name


def collect(folder: Path, submission: Submission, levels: int) -> None:
    """Add the notebooks of a student's folder and of those in it."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_symlink():
            submission.problems.append(f"{entry.name} is a symbolic link, which is not followed")
        elif entry.is_dir(follow_symlinks=False) and levels:
            collect(Path(entry.path), submission, levels - 1)
        elif entry.name.endswith(SUFFIX):
            take(Path(entry.path), submission)


def take(path: Path, submission: Submission) -> None:
    """Add a notebook, unless it is none by its looks."""
    facts = os.lstat(path)
    if not stat.S_ISREG(facts.st_mode):
        submission.problems.append(f"{path.name} is no regular file")
    elif facts.st_size > MOST_BYTES:
        submission.problems.append(f"{path.name} has {facts.st_size / 1e6:,.0f} MB, and at most "
                                   f"{MOST_BYTES / 1e6:.0f} are read")
    elif len(submission.files) == MOST_NOTEBOOKS:
        submission.problems.append(f"{path.name} is one of more than {MOST_NOTEBOOKS} notebooks")
    else:
        submission.files.append(path)


def plain(name: str) -> str:
    """A name as a file system that knows no capitals compares it."""
    return unicodedata.normalize("NFC", name).casefold()


def read_file(path: Path) -> bytes:
    """The bytes of a notebook.

    Raises:
        UnreadableNotebook: it has become a link, or something else that is no file, or it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise UnreadableNotebook(f"it cannot be read: {error.strerror}") from error
