"""The notebooks' prose: numbers that a run backs, words, forms, and every button that the text mentions."""

import re
from collections import Counter
from pathlib import Path

import nbformat
import prose
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

import course_lib
from course_lib import classroom
from course_lib.classroom import exercises
from course_lib.classroom.checks import exercises_of

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
COURSE_LIB = Path(course_lib.__file__).parent
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_committed_notebook(path):
    assert prose.lint(path) == []


def test_the_words_of_the_library():
    """All modules but those that write the training text."""
    modules = [path for path in COURSE_LIB.rglob("*.py") if "corpus" not in path.parts]
    assert len(modules) >= 100
    assert {str(path): findings for path in modules if (findings := prose.lint(path))} == {}


@every_notebook
def test_every_fact_occurs_in_the_text(path):
    text = " ".join(prose.plain(cell.source) for cell in prose.read_as_is(path).cells if cell.cell_type == "markdown")
    computed, known = prose.facts(path.name[:2])
    assert [words for words in [*computed, *known] if words not in text] == []


# The numbers

FOUND_AT_LEAST = 0.8  # of the numbers that are off by a tenth


@every_notebook
def test_a_number_that_is_off_by_a_tenth_is_found(path):
    """The lint would be worthless if any number were near some output; most wrong ones have to be found."""
    notebook, facts = prose.read_as_is(path), prose.facts(path.name[:2])
    total = missed = 0
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        right, text = cell.source, prose.plain(cell.source)
        for number in prose.numbers_in(text):
            digits = re.match(r"[\d,]+(\.\d+)?", number.text.lstrip("-−"))[0]
            wrong = f"{number.value * 1.1:.{number.decimals}f}"
            if prose.is_free(number, text) or wrong == digits.replace(",", "") or right.count(digits) != 1:
                continue
            cell.source = right.replace(digits, wrong)
            total, missed = total + 1, missed + (not list(prose.lint_numbers(notebook, *facts)))
            cell.source = right
    print(f"{path.stem}: {total - missed} of {total} found")
    assert total >= 20 and missed <= (1 - FOUND_AT_LEAST) * total


def with_text(text, output="loss 0.1132, 4096 rows, 92.91 % of 1200", facts=({}, {})):
    """Findings about one sentence, in a section whose one cell printed `output`."""
    cells = [new_markdown_cell("opening"), new_markdown_cell(f"## A\n\n{text}", id="text"),
             new_code_cell("x = 17", outputs=[new_output("stream", name="stdout", text=output)]),
             new_markdown_cell("## B"), new_code_cell("y = 23"), new_markdown_cell("## End")]
    return list(prose.lint_numbers(new_notebook(cells=cells), *facts))


@pytest.mark.parametrize("text", [
    "The loss is 0.11.", "The loss is 0.113, of 4,096 rows.", "That is 93 %.", "That is 92.9 %.", "x is 17 here.",
    "Two of 3 heads, in 2017, in notebook 12, in about 45 minutes.", "See `top_k=50`.",
    "About 1.2 thousand.", "![a 99](images/x.svg) and [a link](https://a.b/77)",
])
def test_numbers_that_are_backed(text):
    assert with_text(text) == []


@pytest.mark.parametrize("text, number", [
    ("The loss is 0.12.", "0.12"), ("That is 94 %.", "94 %"), ("y is 23 there.", "23"), ("It has 4,097 rows.", "4,097"),
    ("The id is `99`.", "99"), ("About 1.3 thousand.", "1.3"),
])
def test_numbers_that_are_not(text, number):
    [finding] = with_text(text)
    assert number in finding


def test_a_fact_backs_its_words_and_no_others():
    assert with_text("It keeps 1.07 GB.", facts=({"1.07 GB": 1.0737}, {})) == []
    assert with_text("It keeps 1.07 GB.", facts=({"1.07 GB": 1.19}, {}))
    assert with_text("It keeps 1.07 of them.", facts=({"1.07 GB": 1.0737}, {}))
    assert with_text("It has 96 layers.", facts=({}, {"96 layers": "a paper"})) == []


# Words and forms

GOOD = {
    "title": "# 03 · T\n\n![a line](images/03_strip.svg)\n\nThe core path takes about 20 minutes.",
    "legend": "<sub>**B** texts · **T** tokens</sub>",
    "opening": "import torch", "drawings": "![a](images/a.svg) ![b](images/b.svg)",
    "takeaways": "> **Takeaway.** A.\n\n> **Takeaway.** B.\n\n> **Takeaway.** C.",
    "predict": "> **Predict.** How many?\n\n<details><summary>Answer</summary>Two.</details>\n\n" * 3,
    "card": "Why one wants it.\n\n### Exercise 3.1 · build · 15 min · core\n\nWrite it for `(B, T)`.",
    "stub": '@exercise("03.1")\ndef f(x):\n    """A docstring."""\n    ...',
    "stuck": prose.STUCK.format("03.1").replace("'", '"'), "claim": 'claim(True, "it holds")',
    "use": "torch.ones(3)", "pencil": "### Pencil 3.1 · 5 min\n\n### Pencil 3.2 · 5 min\n\n### Open question",
}


def lint_of(changes, tmp_path):
    """Findings about the good notebook with some cells changed."""
    cells = []
    for name, source in (GOOD | changes).items():
        make = new_code_cell if name in ("opening", "stub", "stuck", "claim", "use") else new_markdown_cell
        cells.append(make(source, id=name))
        if name == "claim":
            cells[-1].metadata = nbformat.from_dict({"jupyter": prose.HIDDEN, "tags": ["hide-cell"]})
    path = tmp_path / "99_test.ipynb"
    path.write_text(nbformat.writes(new_notebook(cells=cells)))
    return prose.lint(path)


def test_the_good_notebook_has_no_findings(tmp_path):
    assert lint_of({}, tmp_path) == []


@pytest.mark.parametrize("changes, finding", [
    ({"title": "# 03 · T\n\nThe core path takes about 20 minutes."}, "does not show the strip"),
    ({"title": GOOD["title"].replace("20", "10")}, "said to take 10 minutes; it takes about 16"),
    ({"title": GOOD["title"].replace("20", "61")}, "said to take 61 minutes; it takes about 16"),
    ({"title": GOOD["title"].replace("core", "short")}, "does not say 'The core path"),
    ({"drawings": "![a](images/a.svg)"}, "fewer than two drawings"),
    ({"takeaways": "> **Takeaway.** A."}, "'> **Takeaway.**'"),
    ({"pencil": "### Pencil 3.1 · 5 min\n\n### Pencil 3.2 · 5 min"}, "'### Open question'"),
    ({"opening": "import torch\n" * 9}, "9 lines, at most 8"),
    ({"predict": "> **Predict.** How many?\n\n" * 3}, "a Predict prompt without"),
    ({"card": "**Exercise 3.1 · build · 15 min · core**"}, "heading of an exercise"),
    ({"card": "### Exercise 3.2 · build · 15 min · core"}, "no card '### Exercise 3.1"),
    ({"stuck": "hint('03.1')"}, "after the stub comes"),
    ({"claim": "n = 3\nclaim(True, 'it holds')", "use": "torch.ones(n)"}, "'n' comes from the folded cell claim"),
    ({"opening": "x = " + "1" * 90}, "94 columns"),
    ({"opening": "# NBVAL_IGNORE_OUTPUT"}, "a tag, nbval-ignore-output"),
    ({"opening": "claim(x, 'y')"}, "a claim stands in a cell that is not folded"),
    ({"opening": f"print(f'{'word ' * 15}{{x}}')"}, "a string of 15 words"),
    ({"opening": "x = (" + "\n     ".join(["'" + "word " * 12 + "'"] * 4) + ")"}, "a string of 48 words"),
    ({"predict": GOOD["predict"] + "\n\nThe token behind it."}, "'behind'"),
    ({"predict": GOOD["predict"] + "\n\n" + "word " * 33 + "."}, "a sentence of 33 words"),
    ({"pencil": GOOD["pencil"] + "\n\n<details><summary>Answer</summary>\n\nTwo.</details>"}, "unfolds an answer"),
    ({"card": GOOD["card"] + " Then `(B, H, T)`."}, "the legend does not define H"),
])
def test_findings(changes, finding, tmp_path):
    findings = lint_of(changes, tmp_path)
    assert len([found for found in findings if finding in found]) == 1, findings


@pytest.mark.parametrize("source, finding", [
    ('hint = "The key stands for a row."', "line 1: 'stands for'"), ("x = 1\n# the row behind it", "line 2: 'behind'"),
    ('def f():\n    """As it is."""', "line 2: 'As it is'"), ('f(f"so many {n}")', "line 1: 'so many'"),
    (f'message = f"{"word " * 20}{{n}} {"word " * 13}"', "line 1: a sentence of 33 words"),
])
def test_findings_about_a_module(source, finding, tmp_path):
    path = tmp_path / "checks" / "nb99.py"
    path.parent.mkdir()
    path.write_text(source)
    [found] = prose.lint(path)
    assert found.startswith(finding)


def test_minutes_of_the_core_path():
    """90 words and 30 lines are three minutes; stretches, pencil problems and what is marked further are no part."""
    def minutes(*cells):
        return prose.core_minutes(new_notebook(cells=[new_markdown_cell("word " * 90), *cells]))

    printed = [new_output("stream", name="stdout", text="a line\n" * 20 + "\n")]
    assert minutes(new_code_cell("x = 1\n\n" * 10, outputs=printed)) == pytest.approx(3)
    assert minutes(new_code_cell("x = 1\n" * 30, metadata={"tags": ["hide-cell"]})) == pytest.approx(1)
    assert minutes(new_markdown_cell("### Exercise 3.1 · build · 15 min · core")) == pytest.approx(16, abs=0.2)
    assert minutes(new_markdown_cell("### Exercise 3.1 · build · 15 min · stretch")) == pytest.approx(1, abs=0.2)
    assert minutes(new_markdown_cell("### Pencil 3.1 · 5 min\n\n" + "word " * 90)) == pytest.approx(1)
    assert minutes(new_markdown_cell("## A · further"), new_code_cell("x = 1\n" * 30)) == pytest.approx(1)


# Buttons


@every_notebook
def test_every_button_that_the_text_mentions_works(path, monkeypatch, tmp_path, capsys):
    """`hint`, `solution`, `quiz` and `progress` are imported by the first code cell, and do what the text says."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(exercises, "_hints_given", Counter())
    cells = prose.read_as_is(path).cells
    text = "\n".join(cell.source for cell in cells)
    opening = next(cell.source for cell in cells if cell.cell_type == "code")
    pressed = re.findall(r'\b(hint|solution|progress|quiz)\("([\d.]+)"\)', text)
    for name in {name for name, _ in pressed}:
        assert re.search(rf"^from course_lib\.classroom import .*\b{name}\b", opening, re.M), name
    assert {argument for name, argument in pressed if name == "solution"} == {e.id for e in exercises_of(path.name[:2])}
    for name, argument in pressed:
        getattr(classroom, name)(argument)
        printed = capsys.readouterr().out
        assert {"hint": "Hint", "solution": "def ", "progress": f"Notebook {argument}: 0 of ",
                "quiz": "HTML object"}[name] in printed
