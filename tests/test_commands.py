"""The commands: wrong use and missing things are one line and status 2, faults of the program keep their traceback."""

import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest

from course_lib import Tokenizer, __main__, load, save
from course_lib.command_line import Parser, UsageError, in_range, usage_errors

COMMAND = [sys.executable, "-m", "course_lib"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def course(*arguments, **environment):
    """Status, output and errors of a command in a process of its own."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env=ENVIRONMENT | environment)
    return done.returncode, done.stdout, done.stderr


def in_this_process(arguments, capsys):
    try:
        status = __main__.main(arguments)
    except SystemExit as stop:
        status = stop.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def assert_one_line(done, *words):
    status, out, err = done
    assert (status, out, err.count("\n")) == (2, "", 1), done
    assert err.startswith("python -m course_lib") and all(word in err for word in words), err


def test_a_model_that_is_not_there():
    assert_one_line(course("evaluate", "--model", "/nope"), "evaluate: no model in /nope", "'pocket'")


def test_a_folder_that_is_no_model(tmp_path):
    assert_one_line(course("bench", "--model", tmp_path), f"{tmp_path}/config.json is missing")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "shut.txt").write_text("text")
    (tmp_path / "shut.txt").chmod(0)
    if os.access(tmp_path / "shut.txt", os.R_OK):  # root reads everything
        (tmp_path / "work").write_text("a file, where the run would put its folder")
        assert_one_line(course("train", "--work", tmp_path / "work"), f"'{tmp_path}/work'")
    else:
        assert_one_line(course("train", "--text", tmp_path / "shut.txt"), "Permission denied", "shut.txt")


def test_a_device_that_is_not_there(tmp_path):
    done = course("train", "--work", tmp_path, COURSE_DEVICE="toaster")
    assert_one_line(done, "train: COURSE_DEVICE = 'toaster' is not allowed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, words", [
    ([], ["COMMAND"]),
    (["fly"], ["'fly'", "doctor"]),
    (["evaluate", "--sample", "0"], ["--sample: '0' is not allowed: must be an integer >= 1"]),
    (["evaluate", "--model", "unknown-model"], ["'unknown-model' is no folder"]),
    (["evaluate", "--draft", "/nope"], ["no model in /nope"]),
    (["bench", "--runs", "0"], ["--runs", "'0'"]),
    (["bench", "--threads", "-1"], ["--threads", "'-1'", "from 1 to 1,024"]),
    (["bench", "--tokens", "many"], ["--tokens", "'many'", "an integer"]),
    (["bench", "--model", "pocket-draft", "--tokens", "1024"], ["= 1088 is not allowed: must be <= 1,024"]),
    (["bench", "--modle", "pocket"], ["--modle"]),
    (["corpus", "--documents", "-3"], ["--documents", "'-3'"]),
    (["corpus", "--seed", "x"], ["--seed"]),
    (["train", "--show", "--models", "/nope"], ["/nope/pocket", "training_log.jsonl"]),
    (["train", "--only", "gpt-5"], ["'gpt-5'", "pocket-draft"]),
    (["doctor", "--fix"], ["--fix"]),
])
def test_wrong_use(arguments, words, capsys):
    assert_one_line(in_this_process(arguments, capsys), *words)


def test_evaluate_wants_models_that_can_call_tools(tmp_path, capsys):
    lm = load("pocket-draft", device="cpu")
    tokenizer = Tokenizer("plain", lm.tokenizer.pat_str, lm.tokenizer.mergeable_ranks, lm.tokenizer.special_tokens)
    save(replace(lm, tokenizer=tokenizer), tmp_path / "plain")
    assert_one_line(in_this_process(["evaluate", "--model", str(tmp_path / "plain")], capsys), "</tool_call>")


@pytest.mark.parametrize("documents", ["1000000", "40"], ids=["while it writes", "at the last flush"])
def test_a_reader_who_has_enough_is_no_error(documents):
    with subprocess.Popen([*COMMAND, "corpus", "--documents", documents], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        if documents == "1000000":
            assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.fixture
def command(monkeypatch):
    """Make `doctor` a command that raises this."""

    def make(error):
        def fail(argv):
            raise error

        monkeypatch.setattr(__main__, "import_module", lambda name: types.SimpleNamespace(main=fail))

    return make


@pytest.mark.parametrize("error", [ValueError("not enough values to unpack"), KeyError("x"), RuntimeError("sizes"),
                                   AssertionError(), TypeError("None")])
def test_a_fault_of_the_program_keeps_its_traceback(command, error):
    command(error)
    with pytest.raises(type(error)):
        __main__.main(["doctor"])


@pytest.mark.parametrize("error", [UsageError("one\nline"), PermissionError(13, "one line"), OSError("one  line")])
def test_what_is_wrong_outside_is_one_line(command, capsys, error):
    command(error)
    assert_one_line(in_this_process(["doctor"], capsys), "doctor:", "one line")


def test_an_interrupt_is_one_line(command, capsys):
    command(KeyboardInterrupt())
    assert in_this_process(["doctor"], capsys) == (130, "", "\npython -m course_lib doctor: interrupted\n")


def test_only_what_was_asked_for_is_a_usage_error():
    with pytest.raises(UsageError, match="steps = 0") as wrong, usage_errors():
        raise ValueError("steps = 0")
    assert isinstance(wrong.value.__cause__, ValueError)
    with pytest.raises(KeyError), usage_errors():
        raise KeyError("x")


@pytest.mark.parametrize("kind, text, ok", [(int, "1", True), (int, "9", True), (int, "0", False), (int, "10", False),
                                            (int, "2.5", False), (float, "2.5", True), (float, "nan", False),
                                            (float, "inf", False), (int, "", False)])
def test_numbers_have_a_range(kind, text, ok, capsys):
    parser = Parser()
    parser.add_argument("--n", type=in_range(1, 9, kind))
    if ok:
        assert parser.parse_args(["--n", text]).n == kind(text)
    else:
        with pytest.raises(SystemExit):
            parser.parse_args(["--n", text])
        assert "from 1 to 9" in capsys.readouterr().err
