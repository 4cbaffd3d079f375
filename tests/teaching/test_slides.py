"""Slides: which cells they are made of, what of a cell is shown, and a file that needs nothing else."""

import json
import re
import shutil
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import notebooks as tool
from course_lib import __main__
from course_lib.classroom.checks import notebooks
from course_lib.classroom.teaching import slides
from course_lib.classroom.teaching.blocks import plain
from course_lib.classroom.teaching.notebook_files import notebook_file
from course_lib.classroom.teaching.slide_deck import deck, shown_html, warnings
from course_lib.display.colors import ROLES

ROOT = Path(__file__).parents[2]
TEACHING = ROOT / "course_lib/classroom/teaching"
FIGURE = '<figure><img alt="a" src="data:image/png;base64,iVBORw0KGgo="><figcaption>It rises.</figcaption></figure>'
DARK = "@media (prefers-color-scheme: dark){.a{fill:#fff}.b{fill:#eee}}"

TITLE = """# 03 · Attention

![You are here.](images/a.svg)

Something first. **Why is it so slow?** And **so large?**

You will be able to

- ask;
- answer."""
ASK = """## Every token asks

A token asks, and says why.

**It asks aloud.**

![An arrow.](images/a.svg)

> **Predict.** How many?

<details><summary>Answer</summary>Just 3, <em>not</em> 4.</details>

A remark after it.

- one"""
EXERCISE = "Before.\n\n### Exercise 3.1 · build · 8 min · core\n\nCompute it.\n\n```\ny = x\n```\n\n|a|b|\n|-|-|\n|1|2|"
CLOSE = "## What you can now say\n\nIt is slow.\n\n## What we left out\n\nMuch."


def tagged(cell, *tags):
    cell.metadata["tags"] = [*tags]
    return cell


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg"><style>{DARK}</style><path/></svg>')
    return tmp_path


@pytest.fixture
def notebook():
    out = [new_output("stream", name="stdout", text="3 < 4\n"), new_output("display_data", {"text/html": FIGURE})]
    return new_notebook(cells=[
        new_markdown_cell(TITLE), tagged(new_markdown_cell(ASK), "slide"), new_markdown_cell("## Unseen"),
        new_code_cell("print('unseen')", outputs=[new_output("stream", name="stdout", text="unseen")]),
        tagged(new_code_cell("show(line)", outputs=out), "slide"),
        tagged(new_code_cell("code = 1", outputs=out[:1]), "slide-more", "slide-code"),
        tagged(new_markdown_cell(EXERCISE), "slide"), new_markdown_cell(CLOSE)])


def made(notebook, folder):
    return deck(notebook, folder)


def kinds(slide):
    return [block.kind for block in slide.blocks]


def test_the_tags_say_which_cells_make_a_slide(notebook, folder):
    slides = made(notebook, folder)
    assert [slide.title for slide in slides] == \
        ["03 · Attention", "Every token asks", "Unseen", "Exercise 3.1 · build · 8 min · core", "What you can now say"]
    ids = [cell.id for cell in notebook.cells]
    assert [slide.cells for slide in slides] == [[ids[0]], [ids[1]], ids[4:6], [ids[6]], [ids[7]]]
    assert "unseen" not in str(slides)


def test_of_a_text_only_what_is_seen_at_a_glance_is_shown(notebook, folder):
    slide = made(notebook, folder)[1]
    assert kinds(slide) == ["bold", "drawing", "quote", "answer", "list"]
    assert slide.notes == ["<p>A token asks, and says why.</p>\n", "<p>A remark after it.</p>\n"]
    assert slide.heading == "Every token asks" and slide.section == ""


def test_of_code_the_output_is_shown_and_the_source_where_a_tag_asks_for_it(notebook, folder):
    slide = made(notebook, folder)[2]
    assert kinds(slide) == ["output", "figure", "code", "output"]
    assert "3 &lt; 4" in slide.blocks[0].html and slide.blocks[1].html == FIGURE
    assert [block.text for block in slide.blocks if block.kind == "code"] == ["code = 1"]
    assert slide.heading == "" and slide.section == "Unseen", "the section says where one is"


def test_the_text_of_a_task_is_shown_with_its_section(notebook, folder):
    slide = made(notebook, folder)[3]
    assert kinds(slide) == ["paragraph", "code", "table"] and slide.blocks[0].text == "Compute it."
    assert slide.notes == ["<p>Before.</p>\n"] and slide.section == "Unseen"


def test_the_first_slide_asks_the_question_and_the_last_says_what_is_known(notebook, folder):
    first, *_, last = made(notebook, folder)
    assert kinds(first) == ["drawing", "question", "list"]
    assert first.blocks[1].text == "Why is it so slow?" and "Something first" in first.notes[0]
    assert [block.text for block in last.blocks] == ["It is slow."] and "Much." in "".join(last.notes)


def test_an_answer_and_all_that_would_give_it_away_wait_for_a_key(notebook, folder):
    html = list(shown_html(made(notebook, folder)[1]))
    assert [" fragment" in one for one in html] == [False] * 3 + [True] * 2
    assert [re.findall(r'index="(\d+)"', one) for one in html[3:]] == [["1"], ["2"]]
    assert "<summary>" not in html[3] and "Just 3, <em>not</em> 4." in html[3] and "quote predict" in html[2]


def test_an_answer_inside_a_quote_waits_too(notebook, folder):
    notebook.cells[1].source = ("> **Predict.** How many?\n>\n> <details><summary>And why?</summary>\n> Just 3.\n"
                                "> </details>\n\n> **Takeaway.** Few.")
    slide = made(notebook, folder)[1]
    assert kinds(slide) == ["quote", "answer", "quote"]
    question, answer, takeaway = shown_html(slide)
    assert "3" not in question and "fragment" not in question and " fragment" in answer and " fragment" in takeaway
    assert plain(answer) == "And why?Just 3."


def test_a_drawing_is_inside_and_in_its_light_colours(notebook, folder):
    from base64 import b64decode
    [data] = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', made(notebook, folder)[1].blocks[1].html)
    drawn = b64decode(data).decode()
    assert "<path" in drawn and "@media" not in drawn and "<style></style>" in drawn
    assert 'alt="An arrow."' in made(notebook, folder)[1].blocks[1].html


def test_a_missing_image_is_named(notebook, folder):
    (folder / "images/a.svg").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.svg"):
        deck(notebook, folder)


MISTAKES = {
    "no cell is tagged 'slide'": lambda nb: [cell.metadata.pop("tags", None) for cell in nb.cells],
    "no slide has begun above it": lambda nb: tagged(nb.cells[0], "slide-more"),
    "it begins a slide": lambda nb: tagged(nb.cells[5], "slide", "slide-more"),
    "'slide-code' is for code cells": lambda nb: tagged(nb.cells[6], "slide", "slide-code"),
    "beside 'slide' or 'slide-more'": lambda nb: tagged(nb.cells[5], "slide-code"),
    "folded away": lambda nb: tagged(nb.cells[4], "slide", "hide-cell"),
    "no such tag: slides": lambda nb: tagged(nb.cells[4], "slides"),
    "has no output to show": lambda nb: nb.cells[4].update(outputs=[]),
    "shows nothing but its heading": lambda nb: nb.cells[6].update(source="## Words\n\nOnly words."),
    "times full": lambda nb: nb.cells[4].outputs[0].update(text="line\n" * 60),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_what_a_tag_will_not_do_is_said(words, notebook, folder):
    assert list(warnings(notebook, deck(notebook, folder))) == []
    MISTAKES[words](notebook)
    found = list(warnings(notebook, deck(notebook, folder)))
    assert any(words in line for line in found), found


def test_the_executor_keeps_the_tags_and_the_lint_accepts_them(notebook, tmp_path):
    before = [dict(cell.metadata) for cell in notebook.cells]
    assert [dict(cell.metadata) for cell in tool.normalize(notebook).cells] == before
    assert [finding for cell in notebook.cells for finding in tool.lint_cell(cell) if "tag" in finding] == []


# The page


@pytest.fixture
def page(notebook, folder):
    path = folder / "03_attention.ipynb"
    nbformat.write(notebook, path)
    return slides.page(path)


def test_the_page_is_one_file(page):
    markup = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)
    addresses = re.findall(r'(?:src|href)="([^"]{0,40})', markup)
    assert addresses and all(address.startswith("data:") for address in addresses)
    styles = re.findall(r"<style>(.*?)</style>", page, re.S)
    assert len(styles) >= 2 and not re.findall(r"@import|url\((?!data:)[^)]*\)", "".join(styles))
    assert page.count("<section ") == 5 and page.count("</script>") == 4


def test_scripts_cannot_end_before_their_end(page):
    bodies = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(bodies) == 4 and "RevealNotes" in bodies[1]
    assert [word for body in bodies for word in ("<!--", "<script", "</script") if word in body] == []


def test_words_of_a_notebook_are_text_not_markup(notebook, folder):
    notebook.cells[2].source = "## Is a < b & c?"
    nbformat.write(notebook, folder / "03_attention.ipynb")
    assert "<h2>Is a &lt; b &amp; c?</h2>" in slides.page(folder / "03_attention.ipynb")


def test_the_colours_are_those_of_the_drawings():
    style = (TEACHING / "assets/slides.css").read_text()
    used = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", style))
    assert used == {name: ROLES[name].light for name in used} and {"query", "key", "value", "ink", "mark"} <= set(used)


def test_reveal_comes_with_its_licence():
    licence = (TEACHING / "reveal/LICENSE").read_text()
    assert "Hakim El Hattab" in licence and "without restriction" in licence
    assert "MIT licensed" in (TEACHING / "reveal/reveal.js").read_text()[:300]


# The command


def run(*arguments):
    return __main__.main(["class", "slides", *map(str, arguments)])


def test_the_command_writes_a_file_here(page, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run("03") == 0 and (folder / "03_attention.slides.html").read_text() == page
    assert capsys.readouterr().out.startswith("03_attention.slides.html: ")
    assert run("03", "--out", "deep/talk.html") == 0 and (folder / "deep/talk.html").read_text() == page


def test_the_command_says_so_if_nothing_was_run(folder, notebook, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run("03") == 0 and "warning" not in capsys.readouterr().out
    notebook = deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbformat.write(notebook, folder / "03_attention.ipynb")
    assert run("03") == 0
    assert "warning: 03_attention.ipynb was not run: " in capsys.readouterr().out.replace(f"{folder}/", "")


def test_to_check_lists_and_writes_nothing(page, folder, notebook, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert run("03", "--check") == 0 and sorted(folder.iterdir()) == before
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[1] == f"  2  Every token asks  [{notebook.cells[1].id}]"
    nbformat.write(new_notebook(cells=[new_markdown_cell(TITLE)]), folder / "03_attention.ipynb")
    assert run("03", "--check") == 1 and "warning: no cell is tagged" in capsys.readouterr().out


def test_a_notebook_that_there_is_not_and_one_that_is_none(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run("3") == 2 and "notebook = '3' is not allowed: must be one of 00, 01" in capsys.readouterr().err
    (folder / "03_attention.ipynb").write_text("{")
    assert run("03") == 2 and "03_attention.ipynb is no notebook" in capsys.readouterr().err
    (folder / "03_attention.ipynb").write_text(json.dumps({"nbformat": 4}))
    assert run("03") == 2 and not list(folder.glob("*.html"))


def test_a_failed_write_leaves_the_old_file(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "03_attention.slides.html").write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    assert run("03") == 2 and (folder / "03_attention.slides.html").read_text() == "old"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("number", notebooks())
def test_every_notebook_has_slides_and_sound_tags(number):
    path = notebook_file(number, ROOT / "notebooks")
    notebook = nbformat.read(path, as_version=4)
    slides_made = deck(notebook, path.parent)
    found = [line for line in warnings(notebook, slides_made) if "times full" not in line]
    assert found == [] and len(slides_made) >= 6


def test_the_copies_that_people_make_are_not_taken_for_the_notebook(page, folder):
    shutil.copy(folder / "03_attention.ipynb", folder / "03_attention.before_reset_1.ipynb")
    assert notebook_file("03", folder).name == "03_attention.ipynb"
