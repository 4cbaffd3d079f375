"""The answers that `solution` prints: right, short, and made of what the notebook has shown up to there."""

import ast
import builtins
import dis
import inspect
import json
import linecache
import re
from collections import Counter
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from course_lib.classroom import exercises
from course_lib.classroom.answers import LIBRARY, answer
from course_lib.classroom.checks import exercises_of, find, notebooks

ROOT = Path(__file__).parents[2]
IDS = [e.id for notebook in notebooks() for e in exercises_of(notebook)]
LINES, COLUMNS = 12, 88

every_answer = pytest.mark.parametrize("exercise_id", IDS)


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))
    return tmp_path / "progress.json"


@pytest.fixture
def printed(capsys):
    """What `solution` prints."""
    def text(exercise_id):
        capsys.readouterr()
        exercises.solution(exercise_id)
        return capsys.readouterr().out

    return text


# What the notebook offers


@cache
def cells_of(notebook):
    """The cells of a notebook: pairs of a cell type and a source."""
    [path] = (ROOT / "notebooks").glob(f"{notebook}_*.ipynb")
    return [(cell["cell_type"], "".join(cell["source"]))
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


def exercise_of(node):
    """The id under which a function is an exercise, or None."""
    for decorator in getattr(node, "decorator_list", []):
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "exercise":
            return decorator.args[0].value
    return None


def up_to(exercise_id):
    """The cells before an exercise, its stub, and its card: the text over the stub and the stub itself."""
    before = []
    for kind, source in cells_of(find(exercise_id).notebook):
        for node in ast.parse(source).body if kind == "code" else ():
            if exercise_of(node) == exercise_id:
                return before, node, before[-1][1] + source
        before.append((kind, source))
    raise AssertionError(f"{exercise_id} has no cell")


def offered(exercise_id):
    """The names that the cells before an exercise import or define, and the statement that does it.

    For an earlier exercise it is the exercise's id.
    """
    names = {}
    for node in [node for kind, source in up_to(exercise_id)[0] if kind == "code" for node in ast.parse(source).body]:
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0]: ast.Import([alias]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: ast.ImportFrom(node.module, [alias], 0) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = exercise_of(node) or node
    return names


def names_read(code):
    """The global names that a piece of code, and the functions defined in it, read."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_NAME", "LOAD_GLOBAL")}
    return names.union(*(names_read(inner) for inner in code.co_consts if inspect.iscode(inner)))


def borrowed(source, own):
    """The names that a source has neither from itself nor from Python."""
    return names_read(compile(source, "answer", "exec")) - {own} - vars(builtins).keys()


def run(source, names, offers, printed):
    """Run a source as IPython runs a cell, and before it the statements that make the names it reads."""
    filename = f"/tmp/ipykernel_1/{hash(source)}.py"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    code = compile(source, filename, "exec")
    for name in sorted(names_read(code) & offers.keys() - names.keys()):
        if name not in names:
            names[name] = None  # on its way
            made_by = offers[name]
            run(printed(made_by) if isinstance(made_by, str) else ast.unparse(made_by), names, offers, printed)
    exec(code, names)


# Answers


@every_answer
def test_the_printed_text_is_all_that_a_reader_has_to_type(exercise_id, printed, capsys, progress_file):
    text, name = printed(exercise_id), find(exercise_id).finished.__name__
    names = {"exercise": exercises.exercise}
    run(f'@exercise("{exercise_id}")\n{text}', names, offered(exercise_id), printed)
    assert capsys.readouterr().out == \
        f"Exercise {exercise_id} is right: the rest of the notebook runs on your {name}.\n"
    assert names[name].__globals__ is names
    assert json.loads(progress_file.read_text()) == {"passed": [exercise_id]}


@every_answer
def test_an_answer_uses_only_what_the_notebook_has_shown(exercise_id, printed):
    used = borrowed(printed(exercise_id), find(exercise_id).finished.__name__)
    assert used - offered(exercise_id).keys() == set()


@every_answer
def test_a_helper_of_the_course_is_named_on_the_card(exercise_id, printed):
    offers, card = offered(exercise_id), up_to(exercise_id)[2]
    for name in borrowed(printed(exercise_id), find(exercise_id).finished.__name__):
        made_by = offers[name]
        if isinstance(made_by, str) or isinstance(made_by, ast.Import) or \
                (isinstance(made_by, ast.ImportFrom) and not made_by.module.startswith("course_lib")):
            continue  # an earlier exercise, or a package
        assert re.search(rf"\b{name}\b", card), f"{name} is not named on the card of {exercise_id}"


@every_answer
def test_an_answer_has_the_signature_of_its_stub_and_no_docstring(exercise_id, printed):
    [function], stub = ast.parse(printed(exercise_id)).body, up_to(exercise_id)[1]
    for part in ("name", "args", "returns"):
        mine, given = (getattr(node, part) for node in (function, stub))
        assert mine == given or ast.unparse(mine) == ast.unparse(given)
    assert ast.get_docstring(function) is None


@every_answer
def test_an_answer_is_short(exercise_id, printed):
    lines = printed(exercise_id).splitlines()
    assert sum(bool(line.partition("#")[0].strip()) for line in lines) <= LINES
    assert [line for line in lines if len(line) > COLUMNS or not line.isascii()] == []


@every_answer
def test_neither_the_notebook_nor_a_hint_holds_the_answer(exercise_id):
    def squash(text):
        return re.sub(r"\s+", "", text)

    [function] = ast.parse(inspect.getsource(answer(exercise_id))).body
    body = squash("\n".join(map(ast.unparse, function.body)))
    e = find(exercise_id)
    for kind, source in cells_of(e.notebook):
        assert body not in squash(ast.unparse(ast.parse(source)) if kind == "code" else source)
    assert not any(body in squash(hint) for hint in e.hints)


@pytest.mark.parametrize("notebook", notebooks())
def test_in_a_notebook_every_exercise_has_a_name_of_its_own(notebook):
    names = Counter(e.finished.__name__ for e in exercises_of(notebook))
    assert [name for name, times in names.items() if times > 1] == []
    defined = [name for name, value in vars(inspect.getmodule(answer(exercises_of(notebook)[0].id))).items()
               if inspect.isfunction(value) and value.__module__.endswith(f"answers.nb{notebook}")]
    assert sorted(defined) == sorted(names)


# The line that names a version of the library


def test_what_the_library_is_said_to_hold_is_there():
    for exercise_id, line in LIBRARY.items():
        assert exercise_id in IDS
        path = line.partition(",")[0]
        assert callable(resolve_name(path)) and not path.startswith("course_lib.classroom")
        finished = find(exercise_id).finished
        if not finished.__module__.startswith("course_lib.classroom"):
            assert path == f"{finished.__module__}.{finished.__qualname__}"


def test_the_comparison_is_the_last_line_and_absent_where_there_is_nothing_to_compare(printed):
    for exercise_id in IDS:
        comment = f"\n\n# Compare {LIBRARY.get(exercise_id)}.\n"
        assert printed(exercise_id).endswith(comment) == (exercise_id in LIBRARY)
        assert printed(exercise_id).count("# Compare") == (exercise_id in LIBRARY)


# The tests themselves


def test_a_name_that_nobody_offers_is_seen():
    source = "def f(x, *, y=Z) -> W:\n    def g(): return [x + V for x in len(x)]\n    return f(g, U.x)"
    assert borrowed(source, "f") == {"U", "V", "W", "Z"}


def test_what_a_notebook_offers_grows_with_its_cells():
    assert {"Counter", "islice"} <= offered("01.3").keys() and "islice" not in offered("01.1")
    assert "merge" not in offered("01.2")
    assert offered("01.3")["merge"] == "01.2" and isinstance(offered("01.3")["train"], ast.FunctionDef)
    assert "chain" in up_to("07.6")[2] and "chain" in offered("07.6") and "chain" not in offered("07.5")
