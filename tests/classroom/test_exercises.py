"""What `@exercise`, `hint`, `solution` and `progress` say and do, and the file that progress is kept in."""

import errno
import inspect
import json
import linecache
import os
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.classroom import attempt, exercises, progress_file
from course_lib.classroom.checks import Exercise, find, notebooks
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, show
from course_lib.classroom.checks.nb01 import CONTROL, RANKS, SPECIAL_TOKENS, encode_chat_turn, oracle, small_tokenizer
from course_lib.classroom.progress_report import progress
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, encode_piece, merge

ROOT = Path(__file__).parents[2]
OURS = "The rest of the notebook uses course_lib's version.\n"


@pytest.fixture(autouse=True)
def own_file(tmp_path, monkeypatch):
    path = tmp_path / "home" / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    monkeypatch.setattr(exercises, "_hints_given", Counter())
    return path


def cell(source, names=None):
    """Run a source as IPython runs a cell: from a file that does not exist, its lines in linecache."""
    filename = f"/tmp/ipykernel_1/{hash(source)}.py"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    names = {"exercise": exercises.exercise} if names is None else names
    exec(compile(source, filename, "exec"), names)
    return names


def attempt_merge(body):
    return cell(f'@exercise("01.2")\ndef merge(ids, pair, new_id):\n    """Merge."""\n{body}\n')["merge"]


RIGHT = """    merged = []
    for right in ids:
        merged.append(right)
        if tuple(merged[-2:]) == pair:
            merged[-2:] = [new_id]
    return merged"""


# Attempted, or not


@pytest.mark.parametrize("source", [
    "def f(): ...",
    "def f(): pass",
    "def f():\n    '''Doc.'''",
    "def f():\n    '''Doc.'''\n    ...",
    "def f(a, *b, c: 'int' = 3, **d) -> 'int':\n    '''Doc.'''\n    # a comment\n    ...\n    pass",
])
def test_stub(source):
    assert exercises.is_stub(cell(source)["f"])


@pytest.mark.parametrize("source", [
    "def f(): return ...",
    "def f(): return 0",
    "def f(a): return a",
    "def f():\n    '''Doc.'''\n    raise NotImplementedError",
    "def f():\n    yield",
    "def f():\n    x = ...",
    "def f():\n    'doc'\n    print()",
    "def f(a):\n    a",
])
def test_not_a_stub(source):
    assert not exercises.is_stub(cell(source)["f"])


def test_a_stub_is_seen_under_another_decorator():
    assert exercises.is_stub(torch.no_grad()(cell("def f(x): ...")["f"]))
    assert not exercises.is_stub(torch.no_grad()(cell("def f(x): return x")["f"]))


def test_not_attempted(capsys, own_file):
    assert attempt_merge("    ...") is merge
    assert capsys.readouterr().out == \
        "Exercise 01.2 is not attempted: the rest of the notebook uses course_lib's version.\n"
    assert not own_file.parent.exists()


def test_passing_binds_the_readers_function_and_records_it(capsys, own_file):
    bound = attempt_merge(RIGHT)
    assert bound is not merge and bound([1, 2], (1, 2), 9) == [9]
    assert capsys.readouterr().out == "Exercise 01.2 is right: the rest of the notebook runs on your merge.\n"
    assert json.loads(own_file.read_text()) == {"passed": ["01.2"]}


def test_failing_says_what_was_expected_what_came_where_and_why(capsys, own_file):
    assert attempt_merge(RIGHT.replace("== pair", "in (pair, pair[::-1])")) is merge
    assert capsys.readouterr().out == f"""\
Exercise 01.2 is not right yet.
  call:      merge([2, 1, 3, 3], (1, 2), 9)
  expected:  [2, 1, 3, 3]
  got:       [9, 3, 3]
  differs:   result[0] is 9, expected 2
  likely:    only this pair is merged, and only in this order; everything else stays
{OURS}"""
    assert not own_file.exists()


def test_a_wrong_answer_after_a_right_one_stays_recorded(own_file):
    attempt_merge(RIGHT)
    attempt_merge("    return ids")
    assert json.loads(own_file.read_text()) == {"passed": ["01.2"]}


def test_long_arguments_are_shown_by_name(capsys):
    exercises.exercise("01.4")(lambda tokenizer, role, content: [])
    assert "call:      <lambda>(tokenizer, 'user', 'abcd')" in capsys.readouterr().out


# An exception in the reader's function


def test_an_error_shows_only_the_readers_lines(capsys):
    source = """\
def look(ids, i):
    return ids[i + 1]

@exercise("01.2")
def merge(ids, pair, new_id):
    return [look(ids, i)
            for i in range(len(ids))]
"""
    assert cell(source)["merge"] is merge
    out = capsys.readouterr().out
    assert out.startswith("Exercise 01.2 stopped with an error in your function.\n"
                          "  call: merge([5, 1, 2], (1, 2), 9)\n"
                          "  line 6 of the cell, in merge: return [look(ids, i)\n")
    assert out.endswith("  line 2 of the cell, in look: return ids[i + 1]\n"
                        f"  IndexError: list index out of range\n{OURS}")
    assert "exercises.py" not in out and "nb01" not in out and "ipykernel" not in out


def test_an_error_in_a_helper_of_another_cell_shows_both_places(capsys):
    names = cell("from course_lib.classroom.exercises import exercise\ndef look(ids, i):\n    return ids[i + 7]\n")
    cell("@exercise('01.2')\ndef merge(ids, pair, new_id):\n    return look(ids, 0)\n", names)
    assert capsys.readouterr().out.splitlines()[2:5] == [
        "  line 3 of the cell, in merge: return look(ids, 0)",
        "  line 3 of the cell, in look: return ids[i + 7]",
        "  IndexError: list index out of range"]


def test_an_error_inside_a_package_shows_the_line_that_called_it(capsys):
    attempt_merge("    import torch, json\n    return json.loads('{' + str(torch.ones(2).sum()))")
    assert capsys.readouterr().out == f"""\
Exercise 01.2 stopped with an error in your function.
  call: merge([5, 1, 2], (1, 2), 9)
  line 5 of the cell, in merge: return json.loads('{{' + str(torch.ones(2).sum()))
  JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
{OURS}"""


def test_an_error_in_a_file_names_the_file(capsys):
    def answer(ids, pair, new_id):
        raise ZeroDivisionError

    exercises.exercise("01.2")(answer)
    line = inspect.getsourcelines(answer)[1] + 1
    assert f"  test_exercises.py, line {line}, in answer: raise ZeroDivisionError\n  ZeroDivisionError\n" in \
        capsys.readouterr().out


def test_endless_recursion_is_shown_in_a_few_lines(capsys):
    cell("def deeper(n):\n    return deeper(n + 1)\n\n@exercise('01.2')\ndef merge(ids, pair, new_id):\n"
         "    return deeper(0)\n")
    out = capsys.readouterr().out
    assert out.count("\n") <= 11 and "RecursionError" in out and " more ..." in out


LIKELY_T = "likely: .T exchanges all axes; {}.transpose(-1, -2) exchanges the last two"


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize(("body", "likely"), [
    ("    q, k = torch.ones(2, 3, 4, 9), torch.ones(2, 3, 5, 9)\n    return q @ k.T", LIKELY_T.format("k")),
    ("    x = torch.ones(2, 3, 4)\n    return torch.ones(2, 3, 4) + x.T", LIKELY_T.format("x")),
    ("    def product(a, b):\n        return a @ b.T\n    return product(torch.ones(2, 3), torch.ones(6, 4, 3))",
     LIKELY_T.format("b")),
    ("    W = torch.ones(4, 9)\n    return torch.ones(2, 3, 4, 8) @ W.T", ""),  # two axes: .T is right there
    ("    k = torch.ones(2, 3, 5, 9)\n    return torch.ones(2, 3, 4, 9) @ k", ""),
    ("    k = torch.ones(2, 3, 5, 9)\n    k.T\n    raise RuntimeError('the size of it')", ""),
    ("    k = torch.ones(2, 3, 5, 9)\n    raise ValueError(f'size {k.T.shape}')", ""),
])
def test_a_shape_error_of_T_on_more_than_two_axes_says_what_to_write(body, likely, capsys):
    attempt_merge(f"    import torch\n{body}")
    out = capsys.readouterr().out
    assert "stopped with an error in your function" in out
    assert [line.strip() for line in out.splitlines() if "likely:" in line] == [likely] * bool(likely)


@pytest.mark.parametrize("parameters", ["", "ids", "ids, pair, new_id, more", "*, ids, pair, new_id"])
def test_a_wrong_signature(parameters, capsys):
    assert cell(f"@exercise('01.2')\ndef merge({parameters}):\n    return []\n")["merge"] is merge
    assert "  TypeError: merge() " in capsys.readouterr().out


@pytest.mark.parametrize("error", [
    "SystemExit(0)", "GeneratorExit", "StopIteration(3)", "RuntimeError()", r"AssertionError('two\nlines')",
    "Exception(object())", "RecursionError('deep')", "MemoryError()"])
def test_whatever_the_reader_raises_does_not_leave_the_decorator(error, capsys):
    assert attempt_merge(f"    raise {error}") is merge
    out = capsys.readouterr().out
    assert f"line 4 of the cell, in merge: raise {error}\n" in out
    assert " at 0x" not in out


def test_an_endless_loop_is_stopped_and_tracing_is_as_before(capsys):
    assert attempt_merge("    while ids: new_id += 1") is merge
    assert "EndlessLoop: no end after 200,000 lines" in capsys.readouterr().out
    assert sys.gettrace() is None


def test_a_debugger_is_left_alone():
    def tracer(frame, event, arg):
        return None

    sys.settrace(tracer)
    try:
        with attempt.step_limit():
            assert sys.gettrace() is tracer
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)


# Predict: an answer without arguments


@pytest.fixture
def predict(monkeypatch):
    def order():
        return ["tokenize", "embed", "attend"]

    def check(attempt):
        expect_equal(attempt(), ["tokenize", "embed", "attend"], "ids come before vectors")

    made = Exercise("00.1", "put the stages in order", order, check, ("a", "b", "c"), 5, kind="predict")
    monkeypatch.setattr(exercises, "find", {"00.1": made}.__getitem__)
    return made


def test_an_answer_without_arguments(predict, capsys):
    for body, said in [("...", "is not attempted"), ("return ['tokenize', 'embed', 'attend']", "is right"),
                       ("return ['embed', 'tokenize', 'attend']",
                        "result[0] is 'embed', expected 'tokenize'\n  likely:    ids come before vectors")]:
        cell(f"@exercise('00.1')\ndef order():\n    {body}\n")
        assert said in capsys.readouterr().out
    assert predict.heading == "Exercise 0.1 · predict · 5 min · core"


# Hints and solutions


def test_hints_count_up_and_end(capsys):
    for _ in range(5):
        exercises.hint("01.2")
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [f"Hint {i} of 3: {text}" for i, text in enumerate(find("01.2").hints, 1)]
    assert said[3] == said[4] == "No more hints for 01.2: solution('01.2') shows an answer."
    exercises.hint("01.1")
    assert capsys.readouterr().out.startswith("Hint 1 of 3")


def test_solution_is_an_answer_that_can_be_typed_into_the_cell(capsys):
    exercises.solution("01.2")
    source = capsys.readouterr().out
    assert source.startswith("def merge(ids, pair, new_id):\n    merged, i = [], 0\n")
    bound = cell(f'@exercise("01.2")\n{source}')["merge"]
    assert bound is not merge and bound([1, 1, 1], (1, 1), 9) == [9, 1]
    assert "01.2 is right" in capsys.readouterr().out


def test_solution_names_a_version_of_the_library_that_does_more(capsys):
    exercises.solution("03.1")
    *source, empty, last = capsys.readouterr().out.splitlines()
    assert source[0] == "def attention_weights(q, k, mask):" and not any("repeat_kv" in line for line in source)
    assert (empty, last) == ("", "# Compare course_lib.layers.attention_weights, "
                                 "where query heads may share a key head.")


@pytest.mark.parametrize("call", [exercises.exercise, exercises.hint, exercises.solution])
@pytest.mark.parametrize("name, allowed", [("01.99", "01.1, 01.2"), ("1.2", "01"), ("99.1", "01"),
                                           ("", "01")])
def test_an_unknown_id_says_which_there_are(call, name, allowed):
    with pytest.raises(ValueError, match=f"{name.partition('.')[0]}.*must be one of .*{allowed}"):
        call(name)


@pytest.mark.parametrize("change", [{"hints": ("one",)}, {"hints": ("one", "", "three")}, {"minutes": 0},
                                    {"kind": "essay"}, {"difficulty": "easy"}])
def test_an_exercise_record_is_validated(change):
    settings = {"id": "01.9", "title": "t", "finished": merge, "check": print, "hints": ("a", "b", "c"),
                "minutes": 5} | change
    with pytest.raises(ValueError, match=next(iter(change))):
        Exercise(**settings)


# Progress


def test_progress_lists_what_is_done(capsys):
    attempt_merge(RIGHT)
    capsys.readouterr()
    progress("01")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Notebook 01: 1 of 5 done", "  open  01.1  count pairs of neighbours (build, 4 min)",
                         "  done  01.2  merge a pair (build, 8 min)"]
    progress()
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Notebook ")]
    assert [title[9:11] for title in titles] == notebooks()


def test_progress_refuses_a_notebook_that_there_is_not():
    with pytest.raises(ValueError, match="18"):
        progress("18")


def test_what_others_wrote_in_the_file_is_kept(own_file):
    own_file.parent.mkdir()
    own_file.write_text('{"passed": ["00.1", "99.9"], "note": "mine"}')
    attempt_merge(RIGHT)
    assert json.loads(own_file.read_text()) == {"passed": ["00.1", "01.2", "99.9"], "note": "mine"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"3", b'{"passed": {}}', b"{}",
                                     b'{"passed": [1]}', b'{"passed": ["01.1"'])
def test_a_file_that_makes_no_sense_is_set_aside_and_not_lost(content, capsys, own_file):
    own_file.parent.mkdir()
    for i in (1, 2):
        own_file.write_bytes(content)
        assert attempt_merge(RIGHT)([1, 2], (1, 2), 9) == [9]
        assert f"it is kept as progress.json.unreadable-{i}, and a new" in capsys.readouterr().out
        assert own_file.with_name(f"progress.json.unreadable-{i}").read_bytes() == content
        assert json.loads(own_file.read_text()) == {"passed": ["01.2"]}


def test_progress_of_a_broken_file(capsys, own_file):
    own_file.parent.mkdir()
    own_file.write_text("oops")
    progress("01")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == ("The progress file makes no sense: it is kept as progress.json.unreadable-1, "
                     "and a new one is begun.")
    assert second == "Notebook 01: 0 of 5 done"


def test_a_place_that_cannot_be_written_costs_one_line(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    assert attempt_merge(RIGHT) is not merge
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Progress is not saved (Not a directory); COURSE_PROGRESS can name another file."]
    progress("01")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "Progress cannot be read (Not a directory).", "Notebook 01: 0 of 5 done"]


def test_a_read_only_home_costs_one_line(capsys, monkeypatch, own_file):
    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(args[0]))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert attempt_merge(RIGHT) is not merge
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Progress is not saved (Read-only file system); COURSE_PROGRESS can name another file."]


def test_no_home_at_all_costs_one_line(capsys, monkeypatch):
    def refuse(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.setattr(Path, "expanduser", refuse)
    attempt_merge(RIGHT)
    progress("01")
    out = capsys.readouterr().out
    assert "Progress is not saved (Could not determine home directory.)" in out
    assert "Progress cannot be read (Could not determine home directory.)." in out


@pytest.mark.parametrize("step", ["json.dumps", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupted_write_keeps_the_old_file(step, error, monkeypatch, own_file):
    def stop(*args, **kwargs):
        raise error

    own_file.parent.mkdir()
    own_file.write_text('{"passed": ["00.1"]}')
    module, name = step.split(".")
    with monkeypatch.context() as patch:
        patch.setattr(getattr(progress_file, module), name, stop)
        try:
            attempt_merge(RIGHT)
        except KeyboardInterrupt as interrupt:
            assert interrupt is error
    assert own_file.read_text() == '{"passed": ["00.1"]}'
    assert {path.name for path in own_file.parent.iterdir()} == {"progress.json", "progress.json.lock"}


@pytest.mark.parametrize("platform, variables, path", [
    ("linux", {}, "home/.local/share/course_lib/progress.json"),
    ("linux", {"XDG_DATA_HOME": "/data"}, "/data/course_lib/progress.json"),
    ("darwin", {"XDG_DATA_HOME": "/data"}, "home/Library/Application Support/course_lib/progress.json"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/course_lib/progress.json"),
    ("win32", {}, "home/AppData/Local/course_lib/progress.json"),
    ("linux", {"COURSE_PROGRESS": "~/mine.json"}, "home/mine.json"),
])
def test_where_progress_is_kept(platform, variables, path, monkeypatch, tmp_path):
    for name in ("COURSE_PROGRESS", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": str(tmp_path / "home")}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert progress_file.progress_path() == tmp_path / path


# In a kernel


CELLS = [
    "from course_lib.classroom import exercise, hint, progress, solution",
    '@exercise("01.1")\ndef count_pairs(ids):\n    """Count."""\n    ...',
    "print(count_pairs([1, 1, 1]))",
    '@exercise("01.2")\ndef merge(ids, pair, new_id):\n    """Merge."""\n    return ids[0] / 0',
    'hint("01.2")\nhint("01.2")\nsolution("01.2")',
]


def check_outputs(outputs):
    nothing, stub, used, error, hints = outputs
    assert stub.startswith("Exercise 01.1 is not attempted: ") and used == "Counter({(1, 1): 2})\n"
    assert error.splitlines()[1:4] == ["  call: merge([5, 1, 2], (1, 2), 9)",
                                       "  line 4 of the cell, in merge: return ids[0] / 0",
                                       "  ZeroDivisionError: division by zero"]
    assert nothing == "" and hints.startswith("Hint 1 of 3") and "def merge(" in hints


def test_outputs_in_a_kernel(own_file, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    assert {(o.output_type, o.name) for c in book.cells for o in c.outputs} == {("stream", "stdout")}
    check_outputs(["".join(output.text for output in c.outputs) for c in book.cells])
    assert not own_file.exists()


@pytest.mark.parametrize("content", ['{"passed": []}', '{"passed": ["01.1", "01.2"]}', "broken"])
def test_outputs_do_not_depend_on_progress(content, capsys, own_file):
    own_file.parent.mkdir()
    own_file.write_text(content)
    outputs, names = [], {}
    for source in CELLS:
        names = cell(source, names)
        outputs.append(capsys.readouterr().out)
    check_outputs(outputs)
    assert own_file.read_text() == content


# Comparison


class Point:
    pass


@pytest.mark.parametrize("got, expected, where", [
    ([1, 2, 4, 5], [1, 2, 3, 6], "result[2] is 4, expected 3"),
    ([1, 2], [1, 2, 3], "result has length 2, expected 3"),
    ([1, 2, 3], [1, 2], "result has length 3, expected 2"),
    ([[1], [2, 9]], [[1], [2, 3]], "result[1][1] is 9, expected 3"),
    ((1, 2), [1, 2], "result is a tuple, expected a list"),
    ([True], [1], "result[0] is a bool, expected an integer"),
    ([1.0], [1], "result[0] is a number, expected an integer"),
    (torch.ones(1), [1.0], "result is a tensor, expected a list"),
    (None, [], "result is None, expected a list (is a `return` missing?)"),
    (Point(), [], "result is of type Point, expected a list"),
    (float("nan"), float("nan"), "result is nan, expected nan"),
    ("ab", "ac", "result is 'ab', expected 'ac'"),
    ("ab", b"ab", "result is a str, expected bytes"),
    ({"a": 1}, {"a": 1, "b": 2}, "result has no 'b'"),
    ({"a": 1, "c": 0}, {"a": 1}, "result has 'c', which is not expected"),
    (Counter(a=2), {"a": 3}, "result['a'] is 2, expected 3"),
    (Counter(a=1, b=0), Counter(a=1), "result has 'b', which is not expected"),
    (0.30000000000000004, 0.3, "result is 0.30000000000000004, expected 0.29999999999999999"),
])
def test_expect_equal_names_the_first_difference(got, expected, where):
    with pytest.raises(CheckFailed) as failed:
        expect_equal(got, expected, "this")
    likely = failed.value.likely
    assert failed.value.where == where
    assert likely == "this" or likely.startswith(("return ", "nothing comes back: "))
    assert failed.value.expected == show(expected) and failed.value.got == show(got)


@pytest.mark.parametrize("value", [[1, (2, "x")], Counter("aab"), defaultdict(int, a=1), b"\0", None, 0.5,
                                   {"a": [1]}])
def test_expect_equal_accepts_the_same(value):
    expect_equal(value, dict(value) if isinstance(value, dict) else value, "this")


X = torch.tensor([[0.0, 1.0, -2.0], [3.0, float("-inf"), 5.0]])


def changed(row, column, value):
    y = X.clone()
    y[row, column] = value
    return y


@pytest.mark.parametrize("got, where", [
    (X.T, "result has shape (3, 2), expected (2, 3)"),
    (X[None], "result has shape (1, 2, 3), expected (2, 3)"),
    (X.double(), "result has dtype float64, expected float32"),
    (X.tolist(), "result is a list, expected a tensor"),
    (None, "result is None, expected a tensor (is a `return` missing?)"),
    (changed(1, 2, float("nan")), "result[1, 2] is nan, expected 5"),
    (changed(1, 1, float("nan")), "result[1, 1] is nan, expected -inf"),
    (changed(1, 1, -3.4e38), "result[1, 1] is -3.4e+38, expected -inf"),
    (changed(0, 1, float("inf")), "result[0, 1] is inf, expected 1"),
    (changed(0, 2, -2.001), "result[0, 2] is -2.001, expected -2"),
    (changed(1, 0, 3.0001), "result[1, 0] is 3.0001, expected 3"),
])
def test_expect_close_names_the_first_difference(got, where):
    with pytest.raises(CheckFailed) as failed:
        expect_close(got, X, "this")
    assert failed.value.where == where


@pytest.mark.parametrize("got, expected", [
    (X + 1e-7, X), (X.clone().requires_grad_(), X), (torch.tensor([1, 2]), torch.tensor([1, 2])),
    (torch.zeros(0, 3), torch.zeros(0, 3)), (0.1 + 0.2, 0.3), (2, Fraction(4, 2)),
    (float("inf"), float("inf")), (torch.tensor(0.5), 0.5), (torch.tensor([0.5]), 0.5),
    (torch.tensor(3.0), torch.tensor(3.0)),
])
def test_expect_close_accepts(got, expected):
    expect_close(got, expected, "this")


@pytest.mark.parametrize("got, expected, where", [
    (float("nan"), 1.0, "result is nan, expected 1"),
    (float("inf"), 1.0, "result is inf, expected 1"),
    (1.0, float("inf"), "result is 1, expected inf"),
    (float("nan"), float("inf"), "result is nan, expected inf"),
    (True, 1.0, "result is a bool, expected a number"),
    ("1", 1.0, "result is a str, expected a number"),
    (torch.ones(2), 1.0, "result is a tensor, expected a number"),
    (0.33, Fraction(1, 3), "result is 0.33, expected 0.333333"),
    (torch.tensor([1, 3]), torch.tensor([1, 2]), "result[1] is 3, expected 2"),
    (torch.tensor([True]), torch.tensor([False]), "result[0] is True, expected False"),
    (torch.tensor(2.0), torch.tensor(1.0), "result is 2, expected 1"),
])
def test_expect_close_refuses(got, expected, where):
    with pytest.raises(CheckFailed) as failed:
        expect_close(got, expected, "this")
    assert failed.value.where == where


def test_show_is_one_line_of_bounded_length():
    assert show(list(range(1000))).endswith(" ...") and len(show(list(range(1000)))) < 200
    assert show(lambda: 0) == "<function test_show_is_one_line_of_bounded_length.<locals>.<lambda>>"
    assert show(torch.zeros(100, 200)).endswith("0, 0, ...") and "\n" not in show(torch.zeros(3, 3))
    assert show(Counter(a=1)) == "{'a': 1}"


# The finished versions that the library does not hold elsewhere, and the oracle


@given(st.text(alphabet="abcdefz é", max_size=12))
def test_encoding_by_rank_agrees_with_the_oracle(text):
    assert encode_piece(text.encode(), RANKS) == oracle("(?s).+").encode_ordinary(text)


TEMPLATED = Tokenizer("small", POCKET_PATTERN, RANKS, SPECIAL_TOKENS, chat_template=POCKET_CHAT_TEMPLATE)
FRAGMENTS = [*CONTROL, " ", "\n", "ab", "<|", "im_end|>", "é", "'s"]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
def test_a_chat_turn_cannot_be_forged(content):
    tokenizer = TEMPLATED
    ids = encode_chat_turn(tokenizer, "user", content)
    special = [i for i in ids if i in tokenizer.special_tokens.values()]
    assert special == [tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]]
    assert tokenizer.decode(ids) == f"<|im_start|>user\n{content}<|im_end|>\n"


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
def test_a_chat_turn_is_what_the_template_gives(content):
    by_template = TEMPLATED.apply_chat_template([{"role": "user", "content": content}])
    assert encode_chat_turn(TEMPLATED, "user", content) == by_template


def test_a_harmless_chat_turn_is_what_the_template_would_encode():
    for content in ("ab", " ab ", "\n\n ab", "  "):
        text = f"<|im_start|>user\n{content}<|im_end|>\n"
        assert encode_chat_turn(small_tokenizer(), "user", content) == \
            oracle(POCKET_PATTERN).encode(text, allowed_special="all")


def test_settings_given_by_name_are_passed_on_and_shown():
    tried = attempt.Attempt(lambda ids, *, penalty: (ids, penalty), lambda ids, *, penalty: None)
    assert tried([1], penalty=[2.0]) == ([1], [2.0])
    assert tried.last_call == "<lambda>([1], penalty=[2.0])"
