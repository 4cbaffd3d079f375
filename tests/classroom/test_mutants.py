"""Every exercise of every notebook: checks that refuse wrong answers by name, and cells that match them."""

import ast
import importlib
import inspect
import json
import re
import textwrap
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
import wrong_answers
from mutants import marked

from course_lib.classroom import exercises
from course_lib.classroom.checks import exercises_of, find, notebooks

ROOT = Path(__file__).parents[2]
EXERCISES = {e.id: e for notebook in notebooks() for e in exercises_of(notebook)}
ANSWERS = [f for notebook in notebooks() for f in marked(importlib.import_module(f"mutants.nb{notebook}"))]
MUTANTS = [f for f in ANSWERS if f.words]
VARIANTS = [f for f in ANSWERS if not f.words]


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


SHOWN = {mistake.answers[0] for notebook in notebooks() for mistake in wrong_answers.mistakes(notebook)}


@cache
def page_of(notebook):
    """What teachers read about the wrong answers of a notebook."""
    return wrong_answers.flat((wrong_answers.PAGES / f"{notebook}.md").read_text())


def name(function):
    return f"{function.exercise_id}-{function.__name__}"


# Checks against answers


@pytest.mark.parametrize("answer", MUTANTS, ids=name)
def test_a_wrong_answer_is_refused_in_words_that_name_the_mistake(answer, capsys, progress_file):
    bound = exercises.exercise(answer.exercise_id)(answer)
    printed = capsys.readouterr().out
    assert answer.words in printed
    if answer in SHOWN:
        likely, _ = printed.splitlines()[-2:]
        assert wrong_answers.flat(likely) in page_of(answer.exercise_id[:2]), "run tests/tools/wrong_answers.py"
    assert bound is find(answer.exercise_id).finished
    assert " at 0x" not in printed
    assert not progress_file.exists()


@pytest.mark.parametrize("answer", VARIANTS, ids=name)
def test_a_right_answer_written_in_another_way_passes(answer, capsys, progress_file):
    assert exercises.exercise(answer.exercise_id)(answer) is answer
    assert capsys.readouterr().out.startswith(f"Exercise {answer.exercise_id} is right: ")
    assert json.loads(progress_file.read_text())["passed"] == [answer.exercise_id]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_the_finished_version_passes_and_the_stub_is_not_attempted(exercise_id, capsys):
    finished = EXERCISES[exercise_id].finished
    assert exercises.exercise(exercise_id)(finished) is finished
    assert "is right" in capsys.readouterr().out
    stub = define(f"def {finished.__name__}{inspect.signature(finished)}:\n    '''What it does.'''\n    ...")
    assert exercises.exercise(exercise_id)(stub) is finished
    assert "is not attempted" in capsys.readouterr().out


def test_every_exercise_has_four_wrong_answers_and_a_right_one():
    wrong, right = (Counter(f.exercise_id for f in answers) for answers in (MUTANTS, VARIANTS))
    assert {e: wrong[e] for e in EXERCISES if wrong[e] < 4} == {}
    assert [e for e in EXERCISES if not right[e]] == []
    assert set(wrong) | set(right) == set(EXERCISES)


@pytest.mark.parametrize("notebook", notebooks())
def test_no_answer_is_hidden_by_another_of_the_same_name(notebook):
    module = importlib.import_module(f"mutants.nb{notebook}")
    names = Counter(node.name for node in ast.parse(inspect.getsource(module)).body
                    if isinstance(node, ast.FunctionDef))
    assert [name for name, times in names.items() if times > 1] == []


class Unfriendly:
    """A value on which the usual things fail."""

    def __eq__(self, other):
        raise ArithmeticError("I am not compared")

    __hash__ = None

    def __repr__(self):
        raise ArithmeticError("I am not shown")


CONSTANTS = [None, True, 0, -1, 3.5, float("nan"), float("inf"), "", "text", b"", [], [None], (), {}, set(),
             [float("nan")], {(1, 2): None}, torch.zeros(0), torch.full((2, 3), torch.nan), object(), ...,
             NotImplemented, print, Unfriendly(), [Unfriendly()], (i for i in range(3))]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_no_constant_passes_and_none_raises(exercise_id, capsys):
    for value in CONSTANTS:
        # A default and not a closure: a constant answer whose body is more than a stub's.
        bound = exercises.exercise(exercise_id)(lambda *args, value=value: value)
        printed = capsys.readouterr().out
        assert bound is EXERCISES[exercise_id].finished
        assert "not attempted" not in printed and "is right" not in printed and " at 0x" not in printed


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_no_argument_passes_as_the_answer(exercise_id, capsys):
    """`return input` is refused, whichever input it is."""
    for place in range(len(inspect.signature(EXERCISES[exercise_id].finished).parameters)):
        exercises.exercise(exercise_id)(lambda *args, place=place: args[place])
        assert "is right" not in capsys.readouterr().out


# Notebooks against the registry


def define(source):
    """The first function of a source, without its decorators."""
    tree = ast.parse(source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    function.decorator_list = []
    future = ast.parse("from __future__ import annotations").body
    names = {}
    exec(compile(ast.Module([*future, function], []), "stub", "exec"), names)
    return names[function.name]


def parse(source):
    """The syntax tree of a cell; lines of IPython's own (`%`, `!`, `?`) are left out."""
    lines = ["pass" if re.match(r"\s*[%!?]|\s*\S+\?+\s*$", line) else line for line in source.splitlines()]
    return ast.parse("\n".join(lines))


def stubs(cells):
    """The functions under `@exercise("…")` in code cells: pairs of an id and the function's source."""
    for cell in cells:
        for node in ast.walk(parse(cell)):
            for decorator in getattr(node, "decorator_list", []):
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "exercise":
                    yield decorator.args[0].value, ast.unparse(node)


def squash(text):
    return re.sub(r"\s+", "", text)


def bodies_of(function):
    """The statements of a function without its docstring, spacing squashed: rewritten and as they stand."""
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    body = node.body[1 if ast.get_docstring(node) else 0 :]
    yield squash("\n".join(map(ast.unparse, body)))
    yield squash("\n".join(source.splitlines()[body[0].lineno - 1 :]))


def complaints(cells, known):
    """What does not fit between a notebook and its exercises.

    Args:
        cells: pairs of a cell type and a source.
        known: the notebook's registered exercises.
    """
    codes = [source for kind, source in cells if kind == "code"]
    prose = "\n".join(source for kind, source in cells if kind != "code")
    found = list(stubs(codes))
    ids = Counter(exercise_id for exercise_id, _ in found)
    yield from (f"{e.id} has no cell" for e in known if e.id not in ids)
    yield from (f"{i} is not registered" for i in ids if i not in {e.id for e in known})
    yield from (f"{i} occurs {times} times" for i, times in ids.items() if times > 1)
    yield from (f"{i} is more than a stub" for i, source in found if not exercises.is_stub(define(source)))
    squashed = [squash(ast.unparse(parse(source))) for source in codes]
    squashed += [squash(source) for source in (*codes, prose)]
    for e in known:
        if any(body in text for text in squashed for body in bodies_of(e.finished)):
            yield f"the solution of {e.id} stands in the notebook"
        if e.heading not in prose:
            yield f"no card is headed: {e.heading}"
    for source in codes:
        if re.search(r"^progress\(", source, re.M) and "NBVAL_IGNORE_OUTPUT" not in source:
            yield "progress() shows this reader's progress: its cell needs # NBVAL_IGNORE_OUTPUT"


CARD = [("markdown", find("01.2").heading),
        ("code", "%matplotlib inline\n@exercise('01.2')\ndef merge(ids, pair: Pair, n):\n    'It.'\n    ...")]
LEAK = "# merge by hand\nif True:\n" + textwrap.indent(inspect.getsource(find("01.2").finished), "    ")


@pytest.mark.parametrize("cells, expected", [
    (CARD, []),
    (CARD[:1], ["01.2 has no cell"]),
    (CARD[1:], [f"no card is headed: {find('01.2').heading}"]),
    (CARD + CARD[1:], ["01.2 occurs 2 times"]),
    ([*CARD, ("code", "@exercise('01.7')\ndef other():\n    pass")], ["01.7 is not registered"]),
    ([CARD[0], ("code", "@exercise('01.2')\ndef merge(ids):\n    return ids")], ["01.2 is more than a stub"]),
    ([*CARD, ("code", LEAK)], ["the solution of 01.2 stands in the notebook"]),
    ([*CARD, ("markdown", LEAK.split('"""')[2])], ["the solution of 01.2 stands in the notebook"]),
    ([*CARD, ("code", "progress('01')")],
     ["progress() shows this reader's progress: its cell needs # NBVAL_IGNORE_OUTPUT"]),
])
def test_complaints_about_a_notebook(cells, expected):
    assert list(complaints(cells, [find("01.2")])) == expected


def marker(cell):
    """nbval's tag as the comment of the same meaning."""
    ignored = "nbval-ignore-output" in cell["metadata"].get("tags", [])
    return "# NBVAL_IGNORE_OUTPUT\n" if ignored else ""


def test_notebooks_and_registry_match():
    """Both ways: every stub in a notebook is registered, every registered exercise stands in a notebook."""
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], marker(cell) + "".join(cell["source"])) for cell in content["cells"]]
        notebook = path.name[:2]
        known = exercises_of(notebook) if notebook in notebooks() else ()
        found[notebook] = list(complaints(cells, known))
    assert {notebook: said for notebook, said in found.items() if said} == {}
    assert set(notebooks()) - set(found) == set()


def test_hints_lead_up_to_the_solution_and_do_not_hold_it():
    for e in EXERCISES.values():
        assert len(set(e.hints)) == 3
        assert all(body not in squash(hint) for hint in e.hints for body in bodies_of(e.finished))
