"""The table of what people say about language models: its numbers are those that the notebooks have stored, now."""

import json
import re
from pathlib import Path

import claims as tool
import pytest

from course_lib.classroom import course_claims
from course_lib.classroom.course_claims import ClaimNotFound, collect, dumps, sources, table

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NOT_YET: set[int] = set()  # claims that no notebook measures yet


@pytest.fixture(scope="module")
def found():
    return collect(NOTEBOOKS)


def test_the_file_is_what_the_notebooks_say_now(found):
    assert dumps(found) == course_claims.STORED.read_text("utf-8"), "make claims"
    assert found == course_claims.course_claims()


def test_all_27_are_there(found):
    assert [source["number"] for source in sources()] == list(range(1, 28))
    assert {claim.number for claim in found} == set(range(1, 28)) - NOT_YET
    assert {source["number"] for source in sources() if source["cell"].endswith(":")} == NOT_YET


def test_each_has_a_number_a_verdict_and_a_link_to_a_cell_that_is_shown(found):
    for claim in found:
        assert re.search(r"\d", claim.measured) and "{" not in claim.measured, claim
        assert claim.verdict and claim.truth.endswith(".") and claim.heading
        notebook = json.loads((NOTEBOOKS / claim.notebook).read_text())
        cell = next(cell for cell in notebook["cells"] if cell["id"] == claim.cell)
        assert "hide-cell" not in cell["metadata"].get("tags", []), claim
        assert claim.link.startswith(f"[{claim.notebook[:2]}, {claim.heading[:9]}")
        assert claim.link.endswith(f"]({claim.notebook}#cell-id={claim.cell})") and "further" not in claim.link


def test_every_number_comes_from_a_cell(found):
    """What is not in braces is words: digits outside are bounds, ids and names of models."""
    allowed = {"0.7", "1.5", "1", "0", "2", "3", "4", "8", "16", "32", "60", "64", "100", "175", "1,000", "8,192",
               "10,000", "1.0"}
    for source in sources():
        typed = re.sub(r"\{\w+\}", "", source.get("measured", ""))
        assert set(re.findall(r"\d[\d,.]*\d|\d", typed)) <= allowed, source["number"]


def test_the_table_has_a_row_for_each(found):
    lines = table(found).splitlines()
    assert len(lines) == len(found) + 2 and all(line.count("|") - line.count(r"\|") == 4 for line in lines)


def notebook(*cells):
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def code(cell_id, **output):
    return {"cell_type": "code", "id": cell_id, "metadata": {}, "source": [], "outputs": [output]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "course_claims.toml").write_text("""
[[claims]]
number = 1
said = "Cats are liquid."
cell = "03:pour"
measured = "{level} of the glass"
verdict = "yes"
truth = "They fill it."
holds = ["no cat is left over"]
numbers.level = ["03:pour", 'glass (\\d+%)']
[[claims]]
number = 2
said = "Nobody has asked."
cell = "03:"
""")
    monkeypatch.setattr(course_claims, "SOURCES", tmp_path / "course_claims.toml")
    (tmp_path / "03_cats.ipynb").write_text(notebook(
        {"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["## Pouring · further\n", "text"]},
        code("pour", output_type="display_data", data={"text/html": "<style>9%</style>the <b>glass</b>\n 70&#37;"}),
        code("said", output_type="stream", name="stdout", text=["Holds: no cat is left over.\n"])))
    return tmp_path


def test_a_claim_is_read_from_the_words_of_its_cell(folder):
    [claim] = collect(folder)
    assert claim.measured == "70% of the glass" and claim.heading == "Pouring · further"
    assert claim.link == "[03, Pouring](03_cats.ipynb#cell-id=pour)"
    assert claim.row == ("1 · Cats are liquid.", f"70% of the glass ({claim.link})", "**yes** They fill it.")


@pytest.mark.parametrize("old, new, words", [
    ("70&#37;", "full", "is not in the outputs of cell 03:pour: 'the glass full'"),
    ("no cat is left over", "one cat is left over", "does not print 'Holds: no cat is left over.'"),
    ('"pour"', '"other"', "has no cell 'pour'")])
def test_what_is_missing_is_named(folder, old, new, words):
    path = folder / "03_cats.ipynb"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ClaimNotFound, match=re.escape(words)):
        collect(folder)
    assert collect(folder, skip_missing=True) == []


def test_a_notebook_that_is_not_there_measures_nothing(folder):
    (folder / "03_cats.ipynb").unlink()
    assert collect(folder) == []


def test_the_tool_writes_checks_and_complains(folder, monkeypatch, capsys):
    stored = folder / "claims.json"
    monkeypatch.setattr(tool, "STORED", stored)
    arguments = ["--notebooks", str(folder)]
    assert tool.main([*arguments, "--check"]) == 1 and not stored.exists()
    assert tool.main(arguments) == 0 and tool.main([*arguments, "--check"]) == 0
    path = folder / "03_cats.ipynb"
    path.write_text(path.read_text().replace("70", "71"))
    assert tool.main([*arguments, "--check"]) == 1 and "70%" in stored.read_text()
    path.write_text(path.read_text().replace("71&#37;", ""))
    capsys.readouterr()
    assert tool.main(arguments) == 1 and "claim 1" in capsys.readouterr().out and "70%" in stored.read_text()
