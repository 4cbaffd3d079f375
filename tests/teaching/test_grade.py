"""Grading: which submissions there are, what of a notebook runs, how values cross, what is written."""

import csv
import io
import json
import os
import socket
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from grading import HEAD, IMPORTS, RIGHT, WRONG, answered, notebook, rows_of, run_grader
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.teaching.grading import layers
from course_lib.classroom.teaching.grading.command import results_folder
from course_lib.classroom.teaching.grading.judge import Verdict
from course_lib.classroom.teaching.grading.layers import NEEDED, attack, choose_layers
from course_lib.classroom.teaching.grading.pages import mistakes, page_name, student_page
from course_lib.classroom.teaching.grading.program import UnreadableNotebook, code_cells, programs, read_notebook
from course_lib.classroom.teaching.grading.reading import Reader
from course_lib.classroom.teaching.grading.remarks import remarks
from course_lib.classroom.teaching.grading.sandbox import OWN, readable
from course_lib.classroom.teaching.grading.submissions import MOST_BYTES, find_submissions, read_file
from course_lib.classroom.teaching.grading.tables import Graded, grades, safe_cell, write_file
from course_lib.classroom.teaching.grading.values import Malformed, Writer
from course_lib.command_line import UsageError

# Submissions


def test_submissions_are_files_and_folders_and_no_links(tmp_path):
    for name in ("bob.ipynb", "ada/b.ipynb", "ada/deep/a.ipynb", "ada/.ipynb_checkpoints/a.ipynb", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "bob.ipynb")
    (tmp_path / "ada" / "link.ipynb").symlink_to(tmp_path / "bob.ipynb")
    os.mkfifo(tmp_path / "pipe.ipynb")
    with open(tmp_path / "vast.ipynb", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    found = {one.student: one for one in find_submissions(tmp_path)}
    assert {name: [path.name for path in one.files] for name, one in found.items()} == {
        "ada": ["b.ipynb", "a.ipynb"], "bob": ["bob.ipynb"], "link": [], "pipe": [], "vast": []}
    assert "symbolic link" in found["link"].problems[0] and "symbolic link" in found["ada"].problems[0]
    assert "no regular file" in found["pipe"].problems[0]
    assert "at most 52 are read" in found["vast"].problems[0]


def test_two_students_of_one_name_stay_two(tmp_path):
    (tmp_path / "ada").mkdir()
    for name in ("ada.ipynb", "Ada.ipynb", "bob.ipynb"):
        (tmp_path / name).write_bytes(b"{}")
    assert sorted(one.student for one in find_submissions(tmp_path)) == ["Ada.ipynb", "ada.ipynb", "ada/", "bob"]


def test_a_file_that_became_a_link_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "ada.ipynb").symlink_to(tmp_path / "secret")
    with pytest.raises(UnreadableNotebook, match="cannot be read"):
        read_file(tmp_path / "ada.ipynb")


@pytest.mark.parametrize("data, words", [
    (b"\xff\xfe{}", "not UTF-8"), (b"", "not JSON"), (b'{"cells": [', "not JSON"), (b"[" * 100_000, "not JSON"),
    (b"[]", "no notebook"), (b'{"cells": [1]}', "no notebook"), (b'{"worksheets": []}', "no notebook"),
    (b'{"cells": [{"cell_type": "code", "source": [1]}]}', "no notebook"),
    (notebook(*["1"] * 2001), "more than 2,000 cells"), (notebook("#" * 2_000_001), "more than")])
def test_what_is_no_notebook_is_said(data, words):
    with pytest.raises(UnreadableNotebook, match=words):
        code_cells(data)


# What runs


def texts(program):
    """The cells of which something runs."""
    return [step.cell for step in program.steps]


def test_only_what_an_answer_needs_runs():
    cells = [IMPORTS, "x = 1", "y = x + 1\nslow()", "table = []", "table.append(y)", "print(table)",
             "%matplotlib inline", "def helper(T):\n    return table[0] + T", HEAD + "    return helper(T)",
             "x = 5", "z = y"]
    [program] = programs(read_notebook(notebook(*cells)))
    assert texts(program) == [2, 3, 4, 5, 8, 9]


def test_a_name_that_only_a_later_cell_binds_is_taken_from_there():
    [program] = programs(read_notebook(notebook(HEAD + "    return late", "late = 1")))
    assert texts(program) == [1, 2]


def test_the_last_answer_counts_and_a_stub_does_not():
    [program] = programs(read_notebook(notebook(HEAD + f"    {WRONG}", RIGHT, HEAD + '    """It."""\n    ...')))
    assert program.answer.cell == 2
    assert program.remarks == ["2 answers; the last one counts"]


def test_other_answers_become_the_finished_versions():
    other = '@exercise("03.4")\ndef repeat_kv(x, groups):\n    raise SystemExit'
    found = programs(read_notebook(notebook(other, HEAD + "    return repeat_kv(T, S)")))
    [step] = [step for step in found[0].steps if step.name == "repeat_kv"]
    assert [program.exercise_id for program in found] == ["03.2", "03.4"]
    assert step.finished == "03.4"


def test_a_cell_that_is_no_python_is_named():
    book = read_notebook(notebook("x = 1", '@exercise("03.1")\ndef attention_weights(q:\n    return q', RIGHT))
    assert list(book.broken) == ["03.1"]
    assert "cell 2 is not Python: SyntaxError, line 2" in book.broken["03.1"]
    assert book.exercises == ["03.1", "03.2"]


@pytest.mark.parametrize("before, body, words", [
    ("from course_lib.layers import causal_mask as cm", "return cm(T, S)", ["calls course_lib's version"]),
    ("from course_lib import layers", "return layers.causal_mask(T, S)", ["calls course_lib's version"]),
    ("from course_lib.classroom.answers import answer", "return answer('03.2')(T, S)",
     ["reads course_lib's answers or checks"]),
    ("from course_lib.layers import repeat_kv", "return exec('1')", ["uses exec"]),
    ("import math", "return math.pi", [])])
def test_remarks(before, body, words):
    [program] = programs(read_notebook(answered(body, before)))
    assert remarks(program) == words


# Values


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.fractions(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def crossed(value, arguments=()):
    """A value after it was written, sent as text, and read."""
    writer = Writer(arguments)
    written = json.loads(json.dumps(writer.write(value)))
    return Reader(bytes(writer.blobs), arguments).read(written)


@given(PLAIN)
def test_plain_values_cross_unchanged(value):
    came = crossed(value)
    assert came == value and type(came) is type(value)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                                   torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (1, 1), (2, 3)])
def test_tensors_cross_to_the_last_bit(dtype, shape):
    value = (torch.arange(6)[: int(np.prod(shape))] * 0.7).to(dtype).reshape(shape)
    for one in (value, value.expand(3, *shape), value.mT if value.dim() == 2 else value):
        came = crossed(one)
        assert came.dtype == dtype and came.shape == one.shape and torch.equal(came, one)


def test_arguments_and_their_views_stay_what_they_are():
    row, base = SimpleNamespace(name="A"), torch.arange(12).reshape(3, 4)
    given_values = ([row, base],)
    came = crossed([row, base, base[1:, ::2]], given_values)
    assert came[0] is row and came[1] is base
    assert came[2].data_ptr() == base[1:].data_ptr() and torch.equal(came[2], base[1:, ::2])


def test_other_objects_cross_as_their_names_only():
    class Evil:
        def __reduce__(self):
            raise AssertionError("it was pickled")

        def __eq__(self, other):
            return True

        __hash__ = None

    came = crossed([Evil(), print, np.array([object()])])
    assert [type(one).__name__ for one in came] == ["Evil", "builtin_function_or_method", "ndarray"]
    assert came[0] != 1 and came[0] != came[1]


def test_numbers_of_numpy_and_long_numbers_cross():
    came = crossed([np.float32(1.5), np.arange(3), 10**5000, Fraction(10**30, 7)])
    assert type(came[0]) is np.float32 and came[0] == 1.5
    assert came[1].tolist() == [0, 1, 2] and came[2:] == [10**5000, Fraction(10**30, 7)]


@pytest.mark.parametrize("written", [
    {"tensor": ["float32", [2], [0, 4], False]}, {"tensor": ["object", [1], [0, 4], False]},
    {"tensor": ["float32", [-1], [0, 4], False]}, {"tensor": ["float32", [1], [4, 4], False]},
    {"tensor": ["float32", [1] * 40, [0, 4], False]}, {"tensor": 1}, {"array": ["|O", [1], [0, 8], False]},
    {"array": ["<f4", [1 << 62, 4], [0, 4], False]}, {"argument": 7}, {"argument": True}, {"view": [0, 0, [9], [1]]},
    {"view": [0, 1 << 40, [1], [1]]}, {"view": [1, 0, [1], [1]]}, {"bytes": [0, 99]}, {"bytes": [-1, 1]},
    {"unknown": 1}, {"list": 1}, {"dict": [[{"list": []}, 1]]}, {"fraction": ["1", "0"]}, {"record": ["Popen", []]},
    {"set": [{"list": []}]}, {}, [1], {"list": [], "tuple": []}, {"integer": "print(1)"}])
def test_what_no_writer_writes_is_refused(written):
    with pytest.raises(Malformed):
        Reader(bytes(4), (torch.zeros(3), {})).read(written)


# Results


def graded(student, *verdicts):
    return Graded(student, list(verdicts), [], page_name(student))


def test_cells_are_no_formulas():
    students = ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "ada", 'a"b,c\nd']
    table = grades([graded(one, Verdict("03.2", "right")) for one in students], ["03.1", "03.2"])
    rows = list(csv.reader(io.StringIO(table)))
    assert rows[0] == ["student", "03.1", "03.2", "right", "of"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+1", "'-1", "'@x", "' =1", " =1", "ada", 'a"b,c d']
    assert all(row[1:] == ["0", "1", "1", "2"] for row in rows[1:])
    assert safe_cell(0) == "0"


def test_pages_escape_and_say_what_the_check_said():
    lines = ["call:      f(<b>)", "expected:  1", "got:       <img src=x>", "differs:   result", "likely:    a & b"]
    text = student_page(graded("<i>", Verdict("03.2", "not right", lines)), ["03.1", "03.2"])
    assert "<b>" not in text and "<img" not in text and "<i>" not in text
    for words in ("f(&lt;b&gt;)", "&lt;img src=x&gt;", "a &amp; b", "0 of 2 exercises are right", "not handed in"):
        assert words in text
    assert "http" not in text.replace("http-equiv", "")


def test_frequent_mistakes_are_counted():
    wrong = Verdict("03.2", "not right", ["differs:   x", "likely:    the triangle"])
    table = {"ada": [wrong], "bob": [wrong], "eve": [Verdict("03.2", "not right", ["likely:    another"])]}
    text = "".join(mistakes(table))
    assert "2: ada, bob" in text and "the triangle" in text and "another" not in text


def test_page_names_differ_and_are_plain():
    names = [page_name(student) for student in ("a/b", "a b", "a?b", "../../x", "é", "e", "", "A" * 300)]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") for name in names)
    assert max(map(len, names)) < 90 and not any(".." in name for name in names)


def test_a_table_is_private_and_takes_any_character(tmp_path):
    path = tmp_path / "grades.csv"
    write_file(path, "\ud800")
    assert path.read_text() == "\\ud800" and path.stat().st_mode & 0o777 == 0o600


def test_results_do_not_go_among_the_submissions(tmp_path):
    (tmp_path / "sent").mkdir()
    for out in (tmp_path / "sent", tmp_path / "sent" / "x"):
        with pytest.raises(UsageError, match="among the submissions"):
            results_folder(tmp_path / "sent", str(out))
    assert results_folder(tmp_path / "sent", None) == tmp_path / "sent-grades"


# Protection


@pytest.mark.parametrize("way", NEEDED)
def test_without_layers_every_way_is_open_and_each_layer_closes_its_own(way, tmp_path):
    tmp_path.chmod(0o777)
    if way == "reach the network" and len(socket.if_nameindex()) < 2:
        pytest.skip("this machine has no network")
    assert way in attack((), tmp_path)
    for layer in NEEDED[way]:
        if layers.possible(layer) and (tried := attack((layer,), tmp_path)) is not None:
            assert way not in tried, layer


def test_a_machine_that_cannot_hold_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "possible", lambda layer: False)
    says = r"cannot hold students' code: it could (reach the network and|leave processes)"
    with pytest.raises(UsageError, match=says):
        choose_layers(tmp_path, unprotected=False)
    assert choose_layers(tmp_path, unprotected=True) == ()


def test_layers_that_fail_together_are_found_one_by_one(tmp_path, monkeypatch):
    def fails(layers, folder):
        return None if "mounts" in layers else []
    monkeypatch.setattr(layers, "attack", fails)
    assert "mounts" not in choose_layers(tmp_path, unprotected=False)


# The command


def test_a_students_folder_hides_nothing_that_may_be_read():
    """Wherever the course is installed, under /tmp too."""
    assert not os.path.exists(OWN)
    assert [root for root in readable() if root.startswith(OWN)] == []


def test_a_class_is_graded(tmp_path):
    folder = tmp_path / "sent"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / "first.ipynb").write_bytes(answered(WRONG))
    (folder / "ada" / "second.ipynb").write_bytes(notebook(IMPORTS, "while True: pass", RIGHT))
    unknown = '@exercise("99.1")\ndef f():\n    return 1'
    (folder / "bob.ipynb").write_bytes(notebook(IMPORTS, HEAD + '    """It."""\n    ...', unknown))
    done = run_grader(folder, "--notebook", "03")
    rows = rows_of(folder)
    assert "ada: 1 of 1 answers are right" in done.stdout and "there is no exercise '99.1'" in done.stdout
    assert (rows["ada", "03.2"]["status"], rows["ada", "03.2"]["file"]) == ("right", "second.ipynb")
    assert rows["bob", "03.2"]["status"] == "not attempted"
    assert (tmp_path / "sent-grades" / "grades.csv").read_text() == (
        "student,03.1,03.2,03.3,03.4,03.5,03.6,right,of\nada,0,1,0,0,0,0,1,6\nbob,0,0,0,0,0,0,0,6\n")
    assert done.returncode == 1  # since something could not be read
    assert sorted(path.name for path in (tmp_path / "sent-grades" / "students").iterdir()) == [
        page_name("ada"), page_name("bob")]
    assert (tmp_path / "sent-grades").stat().st_mode & 0o77 == 0


def test_what_cannot_be_graded_is_said_in_a_line(tmp_path):
    for folder, words in ((tmp_path / "none", "is no folder"), (tmp_path, "holds no notebook")):
        done = run_grader(folder)
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
