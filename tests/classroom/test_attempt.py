"""What the reader's function may do while it is checked, and what is said of it."""

import functools
import sys

import numpy as np
import pytest
import torch

from course_lib.classroom import attempt, exercises
from course_lib.classroom.checks import Exercise, exercises_of, find, notebooks
from course_lib.classroom.checks.compare import CheckFailed, expect_close, expect_equal, expect_number, show
from course_lib.classroom.checks.nb01 import RANKS
from course_lib.config import ModelConfig
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, encode_piece, merge

EXERCISES = [e for notebook in notebooks() for e in exercises_of(notebook)]
HEAD = '@exercise("01.2")\ndef merge(ids, pair, new_id):\n'
RECURSIVE = HEAD + """\
    if len(ids) < 2:
        return list(ids)
    if (ids[0], ids[1]) == pair:
        return [new_id, *merge(ids[2:], pair, new_id)]
    return [ids[0], *merge(ids[1:], pair, new_id)]
"""


@pytest.fixture(autouse=True)
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))


def cell(source, names=None):
    """The names after a cell ran, in a namespace that knows the decorator."""
    names = {"exercise": exercises.exercise} if names is None else names
    exec(compile(source, "/tmp/ipykernel_1/cell.py", "exec"), names)
    return names


# Recursion


def test_honest_recursion_is_right_in_a_fresh_namespace():
    bound = cell(RECURSIVE)["merge"]
    assert bound.__globals__["merge"] is bound and bound([1, 2, 3], (1, 2), 9) == [9, 3]


def test_honest_recursion_is_right_where_the_finished_version_was_bound(capsys):
    names = cell(HEAD + "    ...\n")
    assert names["merge"] is merge
    assert cell(RECURSIVE, names)["merge"] is not merge
    assert "is right" in capsys.readouterr().out


@pytest.mark.parametrize("before", ["", HEAD + "    ...\n", "from course_lib.tokenizer import merge\n"])
def test_a_function_that_only_calls_itself_is_refused(before, capsys):
    names = cell(before)
    assert cell(HEAD + "    return merge(ids, pair, new_id)\n", names)["merge"] is merge
    out = capsys.readouterr().out
    assert "RecursionError" in out and "likely: an endless recursion: merge runs on itself alone" in out


def test_a_function_of_another_name_cannot_call_the_finished_version(capsys):
    names = cell("from course_lib.tokenizer import merge\n")
    cell(HEAD.replace("def merge", "def mine") + "    return merge(ids, pair, new_id)\n", names)
    assert "RecursionError" in capsys.readouterr().out
    assert names["merge"] is names["mine"] is merge


def test_recursion_under_another_decorator(capsys):
    source = RECURSIVE.replace("def merge", "@torch.no_grad()\ndef merge")
    names = cell(source, {"exercise": exercises.exercise, "torch": torch})
    assert "is right" in capsys.readouterr().out and "merge" not in vars(torch)
    assert names["merge"] is not merge


def test_a_renamed_function_is_told(capsys):
    names = cell(RECURSIVE.replace("merge(", "mine("))
    assert names["mine"]([1, 2], (1, 2), 9) == [9]
    assert capsys.readouterr().out.splitlines()[1] == (
        "  But the cells below call merge, not mine: give it that name and run this cell again.")


@pytest.mark.parametrize("answer", [
    functools.partial(lambda f, *args: f(*args), merge), type("Merge", (), {"__call__": lambda self, *a: merge(*a)})(),
    functools.cache(lambda ids, pair, new_id: ids)])
def test_a_callable_without_a_name(answer, capsys):
    exercises.exercise("01.2")(answer)
    out = capsys.readouterr().out
    assert "runs on your merge" in out or "TypeError: unhashable" in out


# What never ends


@pytest.mark.parametrize("body", [
    "    while True: pass\n", "    while True:\n        pass\n",
    "    while True:\n        try:\n            pass\n        except Exception:\n            pass\n",
    "    for i in iter(int, 1): pass\n", "    return [i for i in iter(int, 1)]\n",
    "    return helper()\n", "    return list(numbers())\n", "    return sum(1 for _ in numbers())\n",
    "    yield from numbers()\n", "    return numbers()\n",
    "    try:\n        helper()\n    except:\n        return [5, 9]\n"])
def test_what_does_not_end_is_stopped(body, capsys):
    names = cell("def helper():\n    i = 0\n    while True:\n        i += 1\n"
                 "def numbers():\n    while True:\n        yield 1\n", {"exercise": exercises.exercise})
    assert cell(HEAD + body, names)["merge"] is merge
    out = capsys.readouterr().out
    assert "EndlessLoop: no end after " in out or "an iterator over [1, 1" in out
    assert sys.gettrace() is None


def test_an_interrupt_passes_and_leaves_the_finished_version(capsys):
    names = {"exercise": exercises.exercise}
    with pytest.raises(KeyboardInterrupt):
        cell(HEAD + "    raise KeyboardInterrupt\n", names)
    assert names["merge"] is merge and sys.gettrace() is None


# Errors of every kind


@pytest.mark.parametrize("error, said", [
    ("SystemExit(3)", "SystemExit: 3"), ("Odd()", "Odd: odd"), ("Mute()", "Mute: (its text cannot be shown)"),
    ("ValueError('x' * 100_000)", "x ..."), (r"ValueError('line\n' * 10_000)", "... 9993 more lines ..."),
])
def test_any_error_is_explained_in_a_few_lines(error, said, capsys):
    cell("class Odd(BaseException):\n    def __str__(self):\n        return 'odd'\n"
         "class Mute(Exception):\n    def __str__(self):\n        raise ValueError('no words')\n"
         f"{HEAD}    raise {error}\n", {"exercise": exercises.exercise})
    out = capsys.readouterr().out
    assert "stopped with an error in your function" in out and said in out and len(out) < 1500


def test_a_panic_in_rust_is_explained(capfd):
    ranks = {bytes([i]): i for i in range(256)} | {b"ab": 5}  # two tokens of one id
    broken = Tokenizer("broken", POCKET_PATTERN, ranks, {})
    exercises.exercise("01.2")(lambda ids, pair, new_id: broken.encode("ab"))
    assert "PanicException: " in capfd.readouterr().out


def test_a_value_that_cannot_be_shown(capsys):
    class Secret:
        def __repr__(self):
            raise ArithmeticError("never")

    exercises.exercise("01.2")(lambda ids, pair, new_id: Secret())
    assert "a Secret that cannot be shown" in capsys.readouterr().out


def test_a_long_call_is_cut():
    tried = attempt.Attempt(lambda *args: 0, merge)
    tried(*([7] * 20 for _ in range(50)))
    assert len(tried.last_call) < 310 and tried.last_call.startswith("<lambda>([7, 7, ")


# Arguments and settings stay as they are


def write(value):
    """Change a value in place."""
    if isinstance(value, torch.Tensor | np.ndarray):
        value[...] = 0
    elif isinstance(value, dict):
        value["new"] = 1
    elif isinstance(value, Tokenizer):
        value.special_tokens.clear()
    elif isinstance(value, torch.nn.Module):
        value.weight.data.zero_()
    else:
        value[0].append(3) if isinstance(value[0], list) else value.append(3)


@pytest.mark.parametrize("value", [
    torch.ones(3), torch.ones(2, 3).half(), torch.ones(2).bfloat16(), torch.ones(2, 2, dtype=torch.bool),
    torch.tensor(2), torch.ones(4, 4).T, [1, 2], [[1], [2]], {"a": 1}, {"a": [1]}, np.ones(3), torch.nn.Linear(2, 3),
    Tokenizer("small", POCKET_PATTERN, {bytes([i]): i for i in range(256)}, {"<s>": 256})],
    ids=lambda value: type(value).__name__)
def test_a_changed_argument_is_refused_whatever_it_is(value):
    before = attempt.fingerprint(value)
    assert attempt.fingerprint(value) == before
    with pytest.raises(CheckFailed, match="your function changes its argument ids"):
        attempt.Attempt(write, merge)(value)
    assert attempt.Attempt(lambda x: 5, merge)(value) == 5


def test_nan_is_no_change():
    assert attempt.Attempt(lambda x: 5, merge)(torch.tensor([torch.nan, -0.0])) == 5


def test_an_argument_given_by_name_is_guarded():
    with pytest.raises(CheckFailed, match="changes its argument penalty"):
        attempt.Attempt(lambda ids, *, penalty: penalty.clear(), merge)([1], penalty=[2.0])


def test_gradients_switched_off_for_an_argument_are_a_change():
    with pytest.raises(CheckFailed, match="changes its argument ids"):
        attempt.Attempt(lambda x: x.requires_grad_(False), merge)(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("change", [lambda: torch.set_default_dtype(torch.float64),
                                    lambda: torch.set_grad_enabled(False)])
def test_a_changed_setting_of_pytorch_is_refused(change):
    dtype = torch.get_default_dtype()
    try:
        with attempt.usual_settings(), pytest.raises(CheckFailed, match="changes a setting of PyTorch"):
            attempt.Attempt(lambda x: change(), merge)(1)
        assert torch.is_grad_enabled() and torch.get_default_dtype() == dtype
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(dtype)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_the_readers_settings_do_not_refuse_the_finished_version(exercise, capsys):
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    try:
        exercises.exercise(exercise.id)(exercise.finished)
        assert "is right" in capsys.readouterr().out
        assert torch.get_default_dtype() == torch.float64 and not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)


def test_an_answer_that_writes_into_the_table_does_not_poison_the_kernel(capsys):
    def poison(piece, mergeable_ranks):
        mergeable_ranks.clear()
        return []

    before = dict(RANKS)
    exercises.exercise("01.3")(poison)
    assert "changes its argument mergeable_ranks" in capsys.readouterr().out
    assert before == RANKS
    assert exercises.exercise("01.3")(encode_piece) is encode_piece
    assert "is right" in capsys.readouterr().out


def test_a_frozen_config_is_no_obstacle():
    config = ModelConfig(vocab_size=12, hidden_size=4, intermediate_size=6, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1)
    assert attempt.Attempt(lambda config: 3, merge)(config) == 3


# Kind, shape and dtype


@pytest.mark.parametrize("got, expected, words", [
    (None, torch.ones(2), "a `return` is missing"),
    ([1.0], torch.ones(1), "return a tensor, not a list"),
    (torch.ones(1, 2), torch.ones(2), "there is an axis too many: return the shape (2,), not (1, 2)"),
    (torch.ones(2), torch.ones(1, 2), "an axis is missing: return the shape (1, 2), not (2,)"),
    (torch.ones(2, 3), torch.ones(3, 2), "the axes are in another order: return the shape (3, 2), not (2, 3); values"),
    (torch.ones(2, 3), torch.ones(2, 4), "an axis has another size: return the shape (2, 4), not (2, 3); values"),
    (torch.ones(2), torch.ones(2).double(), "return float64, not float32"),
    (torch.ones(2), 1.0, "return a number, not a tensor"),
    (None, 1.0, "a `return` is missing"),
    (torch.zeros(2), torch.ones(2), "values"),
])
def test_kind_shape_and_dtype_come_before_the_values(got, expected, words):
    with pytest.raises(CheckFailed) as failed:
        expect_close(got, expected, "values")
    assert words in failed.value.likely


@pytest.mark.parametrize("got, expected, words", [
    (None, [1], "a `return` is missing"), ((1,), [1], "return a list, not a tuple"),
    ([torch.tensor(1)], [1], ".item() takes it out"), (torch.ones(2), [1], ".tolist() a list"),
    ([1, 2], [1, 3], "values")])
def test_kind_comes_first_in_plain_data(got, expected, words):
    with pytest.raises(CheckFailed) as failed:
        expect_equal(got, expected, "values")
    assert words in failed.value.likely


def test_a_number_is_no_tensor():
    expect_number(np.float64(2.0), 2, "values")
    with pytest.raises(CheckFailed, match="return a plain number"):
        expect_number(torch.tensor(2.0), 2, "values")


@pytest.mark.parametrize("body", ["    yield 5\n", "    return iter([5, 9])\n", "    return map(int, ids)\n",
                                  "    return zip(ids)\n"])
def test_an_iterator_is_named_and_read_once(body, capsys):
    cell(HEAD + body)
    out = capsys.readouterr().out
    assert "which can be read only once" in out and "an iterator over [" in out and "list(...)" in out


def test_a_check_of_an_iterator_leaves_nothing_open(monkeypatch, capsys):
    made = Exercise("00.1", "one", merge, lambda tried: tried(), ("a", "b", "c"), 5)
    monkeypatch.setattr(exercises, "find", {"00.1": made}.__getitem__)
    exercises.exercise("00.1")(lambda: (i for i in range(10**9)))
    assert show(list(range(1000))) in capsys.readouterr().out


def test_every_stub_has_the_name_that_the_notebook_calls():
    assert [e.id for e in EXERCISES if not e.finished.__name__.isidentifier()] == []
    assert find("07.3").finished.__module__ == "course_lib.classroom.checks.nb07"
