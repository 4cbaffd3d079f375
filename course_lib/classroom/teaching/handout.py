"""`python -m course_lib class handout 03`: a notebook as sheets to print, with the answers at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.teaching.blocks import title_of
from course_lib.classroom.teaching.handout_sheet import sheet, shortened
from course_lib.classroom.teaching.notebook_files import notebook_file, read_notebook
from course_lib.classroom.teaching.templates import TEMPLATES, read
from course_lib.classroom.whole_file import write_whole
from course_lib.command_line import Parser, UsageError

PAPERS = {"A4": "A4", "letter": "letter"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge",
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
SECONDS = 120


def page(path: Path, *, paper: str = "A4", key: bool = True, exercises_only: bool = False) -> str:
    """A notebook as the text of one HTML file made for print, which needs no network.

    Args:
        paper: `A4` or `letter`.
        key: whether predictions, hints and exercises are answered at the end.
        exercises_only: only the tasks, with a place to write.

    Raises:
        ValueError: another paper.
        UsageError: the file is no notebook.
        FileNotFoundError: an image is missing.
    """
    if paper not in PAPERS:
        raise ValueError(f"paper = {paper!r} is not allowed: must be one of {', '.join(PAPERS)}")
    notebook = read_notebook(path)
    made = sheet(notebook, path.parent, exercises_only=exercises_only)
    return TEMPLATES.get_template("handout.html").render(
        sheet=made, title=title_of(notebook), key=key, paper=PAPERS[paper], exercises_only=exercises_only,
        style=read("assets/handout.css"), shortened=shortened)


def find_browser() -> str:
    """Path of a Chromium, or of a browser made from it.

    Raises:
        UsageError: there is none; the message says what to do.
    """
    for name in (os.environ.get("COURSE_CHROMIUM"), *BROWSERS):
        if name and (path := shutil.which(name)):
            return path
    raise UsageError("this needs Chromium or Chrome: install one, or set COURSE_CHROMIUM to the path of it "
                     "(a handout can do without: leave --pdf out, and print the HTML file from any browser)")


def pdf(html: str) -> bytes:
    """A page as PDF, printed by Chromium.

    Raises:
        UsageError: there is no Chromium, or it did not print.
    """
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="course-handout-", ignore_cleanup_errors=True) as scratch:
        source, out = Path(scratch, "handout.html"), Path(scratch, "handout.pdf")
        source.write_text(html, encoding="utf-8")
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # it refuses otherwise
        command = [browser, "--headless", *root, "--disable-gpu", "--no-first-run", "--disable-background-networking",
                   f"--user-data-dir={scratch}/profile", "--no-pdf-header-footer", f"--print-to-pdf={out}",
                   source.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{browser} did not print in {SECONDS} seconds") from error
        if not out.is_file():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise UsageError(f"{browser} printed nothing (status {done.returncode}): {''.join(last)}")
        return out.read_bytes()


def handout(argv: Sequence[str]) -> int:
    """The command line."""
    parser = Parser(prog="python -m course_lib class handout", description=__doc__)
    parser.add_argument("notebook", metavar="03", help="number of a notebook")
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="default: 03_attention.handout.html, or .exercises.html, here; .pdf with --pdf")
    parser.add_argument("--pdf", action="store_true", help="print it to a PDF file; needs Chromium or Chrome")
    parser.add_argument("--paper", choices=list(PAPERS), default="A4")
    parser.add_argument("--no-key", dest="key", action="store_false", help="leave the answers out, also of --exercises")
    parser.add_argument("--exercises", action="store_true", help="only the tasks, with a place to write")
    options = parser.parse_args(argv)
    path = notebook_file(options.notebook)
    html = page(path, paper=options.paper, key=options.key, exercises_only=options.exercises)
    ending = f"{'exercises' if options.exercises else 'handout'}.{'pdf' if options.pdf else 'html'}"
    out = options.out or Path(f"{path.stem}.{ending}")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, pdf(html) if options.pdf else html)
    print(f"{out}" if options.pdf else f"{out}: open it in a browser and print it")
    return 0
