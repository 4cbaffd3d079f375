"""Sheets to print: nothing is answered before the key, the key answers all, and plumbing is left out."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib import __main__
from course_lib.classroom.checks import exercises_of, notebooks
from course_lib.classroom.quiz_questions import marked_up, questions
from course_lib.classroom.teaching import handout
from course_lib.classroom.teaching.blocks import answer_html, plain
from course_lib.classroom.teaching.handout_sheet import sheet
from course_lib.classroom.teaching.notebook_files import notebook_file, read_notebook

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
STUB = '@exercise("03.2")\ndef causal_mask(T, S):\n    """Which keys may be seen."""\n    ...'
CARD = ("Before the card.\n\n### Exercise 3.2 · find the bug · 5 min · stretch\n\nWrite it.\n\n"
        "### Pencil 3.1 · 5 min\n\nHow many fit?\n\n<details><summary>Answer</summary>Just 52 of them.</details>")
ASK = ("## Every token asks\n\n> **Predict.** How `many` are there, and what share?\n\n"
       "<details><summary>Answer</summary>There are 0.28 < 1.</details>\n\n> **Takeaway.** Few.")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a notebook 03; it is the current one."""
    out = [new_output("stream", name="stdout", text="3 < 4\n")]
    hidden = new_code_cell("claim(secret)", outputs=[new_output("stream", name="stdout", text="Holds: hidden.")])
    hidden.metadata["tags"] = ["hide-cell"]
    nbformat.write(new_notebook(cells=[
        new_markdown_cell("# 03 · Attention\n\nIt is slow, see [there](04_x.ipynb) or [here](https://a.example/b)."),
        new_markdown_cell("<sub>**B** texts</sub>"), new_code_cell("import torch"), new_markdown_cell(ASK),
        new_code_cell("x = 1  # seen", outputs=out), hidden, new_markdown_cell(CARD), new_code_cell(STUB),
        new_code_cell('# Stuck? Remove a #.\n# hint("03.2")'), new_code_cell('progress("03")')]),
        tmp_path / "03_attention.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parts(html):
    """The words of the sheet and of the key, on one line each; the key is None where there is none."""
    main, _, key = html.partition('<section class="key">')
    main = re.sub(r"<style>.*?</style>", "", main, flags=re.S)
    return plain(main), plain(key) if key else None


def test_plumbing_is_left_out(folder):
    main, _ = parts(handout.page(folder / "03_attention.ipynb"))
    for word in ("secret", "hidden", "Stuck", "hint(", "progress("):
        assert word not in main
    assert "x = 1 # seen 3 < 4" in main and "import torch" in main
    assert 'class="item code small"' in handout.page(folder / "03_attention.ipynb"), "the import cell"


def test_answers_come_in_the_key_alone(folder):
    main, key = parts(handout.page(folder / "03_attention.ipynb"))
    assert "0.28" not in main and "52" not in main and "tril" not in main
    assert "Answer 1 is in the key" in main and "Answer 2 is in the key" in main
    assert "1 Every token asks: How many are there, and what share? There are 0.28" in key
    assert "2 Every token asks: How many fit? Just 52 of them." in key
    assert "03.2 · a mask for the last few queries (find the bug, 5 min)" in key and "tril(S - T)" in key
    [exercise] = [e for e in exercises_of("03") if e.id == "03.2"]
    assert all(hint.replace("`", "") in key for hint in exercise.hints) and len(exercise.hints) > 1
    assert "In the library: course_lib.layers.causal_mask" in key


def test_the_key_can_be_left_out(folder):
    main, key = parts(handout.page(folder / "03_attention.ipynb", key=False))
    assert key is None and "in the key" not in main and "How many" in main and "tril" not in main


def test_the_exercise_sheet_has_tasks_and_room_for_them(folder):
    html = handout.page(folder / "03_attention.ipynb", exercises_only=True)
    main, key = parts(html)
    for word in ("Name", "Before the card.", "Write it.", "def causal_mask(T, S):", "How many fit?", "B texts"):
        assert word in main
    for word in ("It is slow", "import torch", "x = 1", "Takeaway", "..."):
        assert word not in main
    assert html.count('class="rule"') >= 6 + 5 and "tril" in key and "0.28" not in key


def test_the_page_starts_with_a_size_and_needs_no_network(folder):
    html = handout.page(folder / "03_attention.ipynb", paper="letter")
    assert "@page { size: letter;" in html and "counter(page)" in html and ".key { break-before: page" in html
    assert re.findall(r'(?:src|href)="([^"]*)"', html) == ["https://a.example/b"], "a link for the reader"
    assert "see there or" in parts(html)[0]
    with pytest.raises(ValueError, match="paper = 'A3' is not allowed: must be one of A4, letter"):
        handout.page(folder / "03_attention.ipynb", paper="A3")


def test_a_picture_that_is_missing_is_named(folder):
    nbformat.write(new_notebook(cells=[new_markdown_cell("# 03\n\n![a](images/gone.svg)")]),
                   folder / "03_attention.ipynb")
    with pytest.raises(FileNotFoundError, match=r"gone\.svg"):
        handout.page(folder / "03_attention.ipynb")


@pytest.mark.parametrize("number", notebooks())
def test_no_answer_of_the_course_is_on_a_sheet_and_each_is_in_its_key(number):
    path = notebook_file(number, NOTEBOOKS)
    main, key = parts(handout.page(path))
    source = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    unquoted = re.sub(r"^> ?", "", source, flags=re.M)
    answers = [plain(answer_html(found)) for found in re.findall(r"<details.*?</details>", unquoted, re.S)]
    assert len(answers) >= 3
    for text in answers:
        assert text in key and (len(text) < 25 or text not in main), text
    for exercise in exercises_of(number):
        assert f"{exercise.id} · {exercise.title}" in key


# The command


def run(*arguments):
    return __main__.main(["class", "handout", *map(str, arguments)])


def test_the_command_writes_a_file_here(folder, capsys):
    assert run("03") == 0 and capsys.readouterr().out.startswith("03_attention.handout.html: ")
    assert (folder / "03_attention.handout.html").read_text() == handout.page(folder / "03_attention.ipynb")
    assert run("03", "--exercises", "--no-key", "--paper", "letter", "--out", "a/b.html") == 0
    expected = handout.page(folder / "03_attention.ipynb", paper="letter", key=False, exercises_only=True)
    assert (folder / "a/b.html").read_text() == expected


def browser(folder, monkeypatch, script):
    """Let a shell script be the browser."""
    path = folder / "browser"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("COURSE_CHROMIUM", str(path))


def test_a_pdf_is_what_the_browser_prints(folder, monkeypatch, capsys):
    script = 'for a; do case $a in --print-to-pdf=*) echo "%PDF $*" > "${a#*=}";; esac; done'
    browser(folder, monkeypatch, script)
    assert run("03", "--pdf") == 0 and capsys.readouterr().out == "03_attention.handout.pdf\n"
    printed = (folder / "03_attention.handout.pdf").read_text()
    assert printed.startswith("%PDF --headless ") and "--no-pdf-header-footer" in printed
    assert printed.rstrip().endswith("/handout.html") and " file:///" in printed


def test_without_a_pdf_the_error_says_why_and_the_old_file_stays(folder, monkeypatch, capsys):
    (folder / "03_attention.handout.pdf").write_text("old")
    browser(folder, monkeypatch, "echo no display >&2; exit 3")
    assert run("03", "--pdf") == 2 and "printed nothing (status 3): no display" in capsys.readouterr().err
    browser(folder, monkeypatch, "exec sleep 5")
    monkeypatch.setattr(handout, "SECONDS", 0.2)
    assert run("03", "--pdf") == 2 and "did not print in 0.2 seconds" in capsys.readouterr().err
    monkeypatch.delenv("COURSE_CHROMIUM")
    monkeypatch.setattr(handout, "BROWSERS", ("no-such-browser",))
    assert run("03", "--pdf") == 2 and "set COURSE_CHROMIUM" in capsys.readouterr().err
    assert (folder / "03_attention.handout.pdf").read_text() == "old"


def test_a_quiz_is_asked_with_its_options_and_answered_in_the_key():
    made = sheet(read_notebook(NOTEBOOKS / "03_attention.ipynb"), NOTEBOOKS)
    asked = " ".join(item.html for item in made.items)
    for question in questions("03"):
        [right] = [option for option in question.options if option.right]
        assert all(marked_up(option.text) in asked for option in question.options)
        assert marked_up(right.why) not in asked
        assert any(marked_up(right.why) in one.html for one in made.answers)
    assert "<details" not in asked
