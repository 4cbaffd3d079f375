"""Editions for students and with solutions, and putting a notebook back: nobody's work is lost."""

import json
import os
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib import __main__
from course_lib.classroom.checks import exercises_of, find, notebooks
from course_lib.classroom.teaching import answered as tool
from course_lib.classroom.teaching import pristine
from course_lib.classroom.teaching.answered import answer_cell, answered, exercise_id, require_right
from course_lib.classroom.teaching.notebook_files import notebook_file
from course_lib.command_line import UsageError

ROOT = Path(__file__).parents[2]
STUB = '@exercise("03.2")\ndef causal_mask(T, S):\n    """Which keys may be seen: (T, S)."""\n    ...'
IMPORTS = "import torch\n\nfrom course_lib.classroom import exercise, progress"
ASK = "> **Predict.** How many?\n\n<details><summary>Answer</summary>Three.</details>\n\n![a](images/a.svg)"


def lesson(*, stub=STUB):
    """A notebook 03 with one of its exercises, as it is stored."""
    out = [new_output("stream", name="stdout", text="seen\n")]
    return new_notebook(cells=[new_markdown_cell("# 03 · Attention", id="title"), new_code_cell(IMPORTS, id="imports"),
                               new_markdown_cell(ASK, id="ask"), new_code_cell(stub, id="ex2"),
                               new_code_cell("print('seen')", id="seen", execution_count=3, outputs=out)])


def causal_mask(T, S):
    return torch.ones(T, S)  # noqa: F821  a wrong answer


def stored(notebook):
    return nbformat.writes(notebook) + "\n"


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True,
                   capture_output=True)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder with a notebook and an image, without git; it is the current one."""
    folder = tmp_path / "notebooks"
    (folder / "images").mkdir(parents=True)
    (folder / "images/a.svg").write_text("<svg/>")
    (folder / "03_attention.ipynb").write_text(stored(lesson()))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return folder


@pytest.fixture
def repository(source):
    """The same folder in a repository that has it."""
    git(source, "init", "--quiet")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "a")
    return source


def run(*arguments):
    return __main__.main(["class", *map(str, arguments)])


def student(folder, *more):
    return run("student", folder, "--notebooks", "03", *more)


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


# For students


def test_students_get_stubs_and_no_outputs(source, tmp_path, capsys):
    assert student(tmp_path / "s") == 0
    made = cells(tmp_path / "s/03_attention.ipynb")
    assert made["ex2"].source == STUB and made["ask"].source == ASK
    assert (made["seen"].outputs, made["seen"].execution_count) == ([], None)
    files = {path.relative_to(tmp_path / "s").as_posix() for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert files == {"03_attention.ipynb", ".pristine/03_attention.ipynb", "images/a.svg", "START.txt", ".edition.json"}
    assert "class reset 03" in (tmp_path / "s/START.txt").read_text()
    assert capsys.readouterr().out == f"{tmp_path / 's/03_attention.ipynb'}\n"


def test_what_somebody_did_to_the_notebook_does_not_reach_students(repository, tmp_path, capsys):
    work = STUB.replace("...", "return torch.ones(T, S)")
    (repository / "03_attention.ipynb").write_text(stored(lesson(stub=work)))
    assert student(tmp_path / "s") == 0
    assert cells(tmp_path / "s/03_attention.ipynb")["ex2"].source == STUB
    assert "as git has it, without later changes" in capsys.readouterr().out


def test_without_a_copy_an_edited_notebook_is_refused(source, tmp_path, capsys):
    (source / "03_attention.ipynb").write_text(stored(lesson(stub=STUB.replace("...", "return 1"))))
    assert student(tmp_path / "s") == 2 and not (tmp_path / "s").exists()
    assert "has been worked on (exercise 03.2)" in capsys.readouterr().err


def test_a_second_edition_replaces_the_first_and_leaves_work_alone(source, tmp_path, capsys):
    made = tmp_path / "s/03_attention.ipynb"
    assert student(tmp_path / "s") == 0
    newer = lesson()
    newer.cells[0].source = "# 03 · Attention, better"
    (source / "03_attention.ipynb").write_text(stored(newer))
    assert student(tmp_path / "s") == 0 and cells(made)["title"].source.endswith("better")
    made.write_text("my work")
    capsys.readouterr()
    assert student(tmp_path / "s") == 0 and made.read_text() == "my work"
    assert "left alone, since somebody has worked on it" in capsys.readouterr().out
    assert student(tmp_path / "s", "--force") == 0
    assert (tmp_path / "s/03_attention.before_edition_1.ipynb").read_text() == "my work"
    assert cells(made)["title"].source.endswith("better")


def test_a_folder_with_something_else_is_not_written_to(source, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    (other / "03_attention.ipynb").write_text("mine")
    assert student(other) == 2 and [path.name for path in other.iterdir()] == ["03_attention.ipynb"]
    assert "holds something else than an earlier edition" in capsys.readouterr().err
    assert student(other, "--force") == 0
    assert (other / "03_attention.before_edition_1.ipynb").read_text() == "mine"
    (other / ".edition.json").write_text("{")
    assert student(other) == 2, "a marker that cannot be read is no marker"
    (other / ".edition.json").write_text(json.dumps({"kind": "solutions", "files": {}}))
    assert student(other) == 2 and "holds a solutions edition" in capsys.readouterr().err
    assert student(other / "03_attention.ipynb") == 2 and "is a file" in capsys.readouterr().err


def test_a_full_disk_leaves_what_was_there(source, tmp_path, monkeypatch, capsys):
    assert student(tmp_path / "s") == 0
    made = tmp_path / "s/03_attention.ipynb"
    before = made.read_bytes()
    (source / "03_attention.ipynb").write_text(stored(lesson()).replace("seen", "shown"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert student(tmp_path / "s") == 2 and made.read_bytes() == before
    assert "No space left" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "s").rglob(".*.ipynb.*")]


def test_only_notebooks_of_the_course(source, tmp_path, capsys):
    assert run("student", tmp_path / "s", "--notebooks", "18") == 2 and not (tmp_path / "s").exists()
    assert "notebook = '18' is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("number", notebooks())
def test_every_notebook_of_the_course_has_a_stub_for_every_exercise(number):
    notebook = nbformat.read(notebook_file(number, ROOT / "notebooks"), as_version=4)
    stubs = {exercise_id(cell): cell.source for cell in notebook.cells if exercise_id(cell)}
    assert set(stubs) == {e.id for e in exercises_of(number)}
    for exercise, source in stubs.items():
        filled = answer_cell(source, exercise)
        assert source.rstrip().endswith("...") and filled.startswith(source.rstrip().removesuffix("...").rstrip())
        compile(filled, exercise, "exec")


# Putting a notebook back


def test_reset_takes_the_copy_beside_it(source, tmp_path, monkeypatch, capsys):
    student(tmp_path / "s")
    monkeypatch.chdir(tmp_path / "s")
    path = Path("03_attention.ipynb")
    pure = path.read_bytes()
    path.write_text("broken {")
    capsys.readouterr()
    assert run("reset", "03") == 0 and path.read_bytes() == pure
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("03_attention.ipynb is as it was") and first.endswith("03_attention.before_reset_1.ipynb")
    assert ".pristine" in first and "progress is kept" in second and "Reload Notebook from Disk" in second
    assert Path("03_attention.before_reset_1.ipynb").read_text() == "broken {"


def test_reset_keeps_each_version_and_none_twice(repository, capsys):
    path, pure = repository / "03_attention.ipynb", (repository / "03_attention.ipynb").read_bytes()
    assert run("reset", "03") == 0 and "nothing to do" in capsys.readouterr().out
    for number, work in enumerate(("one", "two"), 1):
        path.write_text(work)
        assert run("reset", "03") == 0 and path.read_bytes() == pure
        assert (repository / f"03_attention.before_reset_{number}.ipynb").read_text() == work
    assert len(list(repository.glob("*before*"))) == 2


def test_reset_brings_back_what_is_gone(source, tmp_path, monkeypatch, capsys):
    student(tmp_path / "s")
    monkeypatch.chdir(tmp_path / "s")
    Path("03_attention.ipynb").unlink()
    assert run("reset", "--all") == 0 and Path("03_attention.ipynb").exists()
    assert "was gone and is back" in capsys.readouterr().out


def test_reset_from_a_folder_goes_before_all(repository, tmp_path, capsys):
    (tmp_path / "stick").mkdir()
    other = lesson(stub=STUB + "  # from the stick")
    (tmp_path / "stick/03_attention.ipynb").write_text(stored(other))
    assert run("reset", "03", "--from", tmp_path / "stick") == 0
    assert (repository / "03_attention.ipynb").read_text() == stored(other)


def test_reset_without_a_copy_says_what_can_be_done(source, monkeypatch, capsys):
    (source / "03_attention.ipynb").write_text("work")
    assert run("reset", "03") == 2
    assert "there is no folder .pristine beside it" in (said := capsys.readouterr().err) and "--from FOLDER" in said
    monkeypatch.setenv("PATH", "")
    assert run("reset", "03") == 2 and "git is not installed" in capsys.readouterr().err
    assert [path.name for path in source.glob("*.ipynb")] == ["03_attention.ipynb"]
    assert (source / "03_attention.ipynb").read_text() == "work"


def test_reset_takes_no_broken_copy_and_loses_nothing_on_a_full_disk(repository, tmp_path, monkeypatch, capsys):
    path = repository / "03_attention.ipynb"
    path.write_text("work")
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick/03_attention.ipynb").write_bytes(b"\xff{")
    assert run("reset", "03", "--from", tmp_path / "stick") == 2 and path.read_text() == "work"
    assert "holds no notebook 03" in capsys.readouterr().err
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert run("reset", "03") == 2 and path.read_text() == "work"


def test_reset_wants_to_know_which(source, capsys):
    for arguments in ([], ["03", "--all"]):
        with pytest.raises(SystemExit) as stop:
            run("reset", *arguments)
        assert stop.value.code == 2 and "name a notebook" in capsys.readouterr().err


def test_elsewhere_the_notebooks_of_the_repository_are_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pristine.home_of("03") == ROOT / "notebooks"
    assert list(pristine.present()) == notebooks()


# With solutions


def test_an_answer_fills_the_stub_and_keeps_decorator_and_docstring():
    filled = answer_cell(STUB + "\n\nprint(causal_mask(1, 2))", "03.2")
    assert filled.splitlines() == STUB.splitlines()[:3] + [
        "    return torch.ones(T, S, dtype=torch.bool).tril(S - T)  # row t sees 0 ... S - T + t", "",
        "print(causal_mask(1, 2))"]
    with pytest.raises(UsageError, match=r"exercise 03\.2 must hold a function with a docstring"):
        answer_cell("x = 1", "03.2")


def test_predictions_are_opened():
    made = answered(lesson())
    assert "<details open><summary>Answer" in made.cells[2].source and answered(made).cells[2].source.count("open") == 1


@pytest.fixture
def only_03_2(monkeypatch):
    """Notebook 03 as if it had one exercise."""
    for module in (tool, __import__("course_lib.classroom.teaching.editions", fromlist=["x"])):
        monkeypatch.setattr(module, "exercises_of", lambda number: [find("03.2")])


def test_solutions_are_run_and_written_with_outputs(source, tmp_path, only_03_2, capsys):
    progress = Path(os.environ["COURSE_PROGRESS"])
    before = progress.read_bytes() if progress.exists() else None
    assert run("solutions", tmp_path / "s", "--notebooks", "03") == 0
    made = cells(tmp_path / "s/03_attention.ipynb")
    assert made["ex2"].outputs[0].text.startswith("Exercise 03.2 is right")
    assert [made[name].execution_count for name in ("imports", "ex2", "seen")] == [1, 2, 3]
    assert "tril" in made["ex2"].source and "<details open>" in made["ask"].source
    assert (tmp_path / "s/images/a.svg").exists() and "all 1 exercises right" in capsys.readouterr().out
    assert (progress.read_bytes() if progress.exists() else None) == before, "the teacher's own is left alone"


def test_an_answer_that_fails_is_named_and_nothing_is_written(source, tmp_path, only_03_2, monkeypatch, capsys):
    monkeypatch.setattr(tool, "answer", lambda exercise: causal_mask)
    assert run("solutions", tmp_path / "s", "--notebooks", "03") == 2 and not (tmp_path / "s").exists()
    assert "the answer to exercise 03.2 was not accepted: Exercise 03.2 is not right yet" in capsys.readouterr().err


def test_a_cell_that_raises_is_named(source, tmp_path, capsys):
    broken = lesson()
    broken.cells[4].source = "1 / 0"
    (source / "03_attention.ipynb").write_text(stored(broken))
    assert run("solutions", tmp_path / "s", "--notebooks", "03") == 2
    assert "cell seen raised ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_an_exercise_without_a_cell_is_missed():
    with pytest.raises(UsageError, match=r"exercise 03\.1 was not accepted: there is no cell for it"):
        require_right(lesson(), "03")


def test_reset_names_the_notebook_that_is_not_here(repository, tmp_path, monkeypatch):
    path = repository / "03_attention.ipynb"
    path.write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert pristine.put_back("03", repository).startswith(f"{path} is as it was")
    monkeypatch.chdir(repository)
    assert pristine.put_back("03", repository).startswith("03_attention.ipynb is as it was")
