"""What is done, what is next, the minutes left; and the way to another machine."""

import json
import sys

import pytest

from course_lib import __main__
from course_lib.classroom.checks import exercises_of
from course_lib.classroom.course_map import CHAPTERS
from course_lib.classroom.exercises import exercise
from course_lib.classroom.kept_answers import answers_path, read_answers
from course_lib.classroom.progress_file import progress_path, read_progress, record
from course_lib.classroom.progress_report import hours, next_exercise, report, standings

NUMBERS = [chapter.number for chapter in CHAPTERS]
BODY = """\
    out, i = [], 0
    while i < len(ids):
        pairs = tuple(ids[i:i + 2]) == tuple(pair)
        out.append(new_id if pairs else ids[i])
        i += 2 if pairs else 1
    return out
"""
EVERY = [e.id for number in NUMBERS for e in exercises_of(number)]


@pytest.fixture(autouse=True)
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "here" / "progress.json"))


def run(*arguments):
    return __main__.main(["progress", *map(str, arguments)])


def answer(text):
    """Answer Exercise 01.2 as in a cell; the function's source is in a file of its own."""
    path = progress_path().with_name("cell.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"def merge(ids, pair, new_id):\n    # {text}\n{BODY}")
    namespace = {"__name__": "cell"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    sys.modules.pop("cell", None)
    exercise("01.2")(namespace["merge"])


def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "there" / "progress.json"))


def test_minutes_left_are_the_open_exercises_or_a_whole_core_path():
    first = exercises_of("03")[0]
    begun, fresh = standings({first.id}, ["03", "04"])
    assert begun.minutes == sum(e.minutes for e in exercises_of("03")) - first.minutes
    assert fresh.minutes == fresh.chapter.core_minutes
    assert report([first.id], ["03", "04"])[-1] == f"Left: about {hours(begun.minutes + fresh.minutes)}."


@pytest.mark.parametrize("passed, expected", [
    ([], "00.1"), (["03.1"], "03.2"), (["03.1", "07.2"], "07.1"),
    ([e.id for e in exercises_of("07")], "00.1"),
    ([e for e in EVERY if e != "05.2"], "05.2"), (EVERY, None)])
def test_what_comes_next(passed, expected):
    found = next_exercise(standings(frozenset(passed), NUMBERS))
    assert (found and found.id) == expected


def test_a_finished_notebook_names_the_one_after_it():
    passed = [e.id for e in exercises_of("03")]
    assert report(passed, ["03"])[-1] == "Next: notebook 04, The transformer block."
    assert report(EVERY, NUMBERS)[-1].startswith(f"  done  {EVERY[-1]}  ")


def test_ids_that_nobody_knows_count_for_nothing():
    assert report(["99.1", "03.99"], ["03"]) == report([], ["03"])


def test_the_command_shows_progress(capsys):
    record("03.1")
    assert run("03") == 0
    out = capsys.readouterr().out
    assert out.startswith("Notebook 03: 1 of 6 done\n") and "\nNext: 03.2" in out and "Notebook 04" not in out
    assert out.splitlines()[-1] == f"Kept in {progress_path()}"


def test_progress_and_answers_go_to_another_machine(tmp_path, monkeypatch, capsys):
    answer("mine")
    record("00.1")
    assert run("--export", tmp_path / "bag.json") == 0
    elsewhere(tmp_path, monkeypatch)
    record("03.1")
    assert run("--import", tmp_path / "bag.json") == 0
    assert "2 exercises and 1 answers are new here; 0 were done already" in capsys.readouterr().out
    assert read_progress(progress_path())["passed"] == ["00.1", "01.2", "03.1"]
    assert "# mine" in read_answers()["01.2"].source
    assert run("--import", tmp_path / "bag.json") == 0
    assert "0 exercises and 0 answers are new here; 2 were done already" in capsys.readouterr().out


@pytest.mark.parametrize("later, stays", [("2001-01-01T00:00:00+00:00", "# mine"),
                                          ("2999-01-01T00:00:00+00:00", "# theirs")])
def test_of_two_answers_the_later_stays(later, stays, tmp_path):
    answer("theirs")
    run("--export", tmp_path / "bag.json")
    data = json.loads((tmp_path / "bag.json").read_text())
    data["answers"]["01.2"]["kept_at"] = later
    (tmp_path / "bag.json").write_text(json.dumps(data))
    answer("mine")
    run("--import", tmp_path / "bag.json")
    assert stays in read_answers()["01.2"].source


def test_answers_can_be_left_out(tmp_path, monkeypatch):
    answer("mine")
    run("--export", tmp_path / "bag.json", "--without-answers")
    assert json.loads((tmp_path / "bag.json").read_text())["answers"] == {}
    run("--export", tmp_path / "full.json")
    elsewhere(tmp_path, monkeypatch)
    run("--import", tmp_path / "full.json", "--without-answers")
    assert read_progress(progress_path())["passed"] == ["01.2"] and not answers_path().exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"passed": ["01.2"]}',
                                     '{"kind": "other", "passed": [], "answers": {}}',
                                     '{"passed": [], "answers": {"01.2": 3}}'])
def test_another_file_is_refused_and_changes_nothing(content, tmp_path, capsys):
    record("00.1")
    (tmp_path / "bag.json").write_text(content)
    assert run("--import", tmp_path / "bag.json") == 2
    assert "bag.json" in capsys.readouterr().err
    assert read_progress(progress_path())["passed"] == ["00.1"]


@pytest.mark.parametrize("arguments", [["--import", "missing.json"], ["19"], ["--export", "no/such/folder/x.json"]])
def test_what_cannot_be_done_is_said_in_one_line(arguments, capsys):
    assert run(*arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_export_that_fails_keeps_the_old_one(tmp_path, monkeypatch):
    record("00.1")
    run("--export", tmp_path / "bag.json")
    old = (tmp_path / "bag.json").read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert run("--export", tmp_path / "bag.json") == 2
    assert (tmp_path / "bag.json").read_bytes() == old
