"""What is kept of an answer that passed: its text with all that it needs, in a file that two kernels share."""

import importlib.metadata
import json
import linecache
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from reader_kernel import type_cells

from course_lib.classroom import exercises, keep_answers, kept_answers, progress_file
from course_lib.classroom.answer_source import CannotBeWritten, load_written, write_down
from course_lib.classroom.checks import find
from course_lib.classroom.kept_answers import load_answer, read_answers

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_file(tmp_path, monkeypatch):
    path = tmp_path / "home" / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    monkeypatch.setattr(kept_answers, "_switch", {})
    return path


def cell(source, names=None):
    """Run a source as IPython runs a cell: in a file that does not exist, its lines in linecache, its text in `In`."""
    source = textwrap.dedent(source)
    filename = f"/tmp/ipykernel_1/{hash(source)}.py"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    names = {"exercise": exercises.exercise, "In": [""]} if names is None else names
    names["In"].append(source)
    exec(compile(source, filename, "exec"), names)
    return names


MERGE = """\
@exercise("01.2")
def merge(ids, pair, new_id):
    # my way of doing it
    merged = []
    for right in ids:
        merged.append(right)
        if tuple(merged[-2:]) == pair:
            merged[-2:] = [new_id]
    return merged
"""


def kept():
    return read_answers()


# The text of an answer


def test_the_text_is_kept_with_its_comments_its_time_and_the_version(own_file):
    cell(MERGE)
    data = json.loads(own_file.with_name("progress.answers.json").read_text())["answers"]
    assert data["01.2"]["source"] == MERGE.split("\n", 1)[1].rstrip()
    assert data["01.2"]["needs"] == {} and data["01.2"]["problem"] == ""
    assert data["01.2"]["kept_at"].endswith("+00:00") and data["01.2"]["course_version"]


def test_what_is_wrong_or_not_attempted_is_not_kept(own_file):
    cell(MERGE.replace("== pair", "!= pair"))
    cell(MERGE.split("    #")[0] + "    ...\n")
    assert not own_file.parent.exists()


def test_the_last_right_version_wins():
    cell(MERGE)
    cell(MERGE.replace("# my", "# another"))
    cell(MERGE.replace("== pair", "!= pair"))
    assert "# another way" in kept()["01.2"].source


def test_the_same_text_is_not_written_again(own_file):
    cell(MERGE)
    path = own_file.with_name("progress.answers.json")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    cell(MERGE)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


NEEDS = {
    "a module": ("import math", "math.sqrt(4)"),
    "a module under another name": ("import torch.nn.functional as F", "F.relu(torch.ones(2)).sum()"),
    "a class of a package": ("from collections import Counter", "Counter(ids)"),
    "under another name": ("from collections import Counter as C", "C(ids)"),
    "a built-in of a package": ("from math import sqrt as root", "root(4)"),
    "a function of PyTorch": ("from torch import softmax", "softmax(torch.ones(2), 0)"),
    "a type": ("HALF = torch.float16", "torch.ones(1, dtype=HALF)"),
    "a number": ("LIMIT = 0.1", "LIMIT + 1"),
    "infinity": ("NONE = float('-inf')", "max(NONE, 1)"),
    "a table": ("TABLE = {'a': [1, (2, None)], 'b': {3}}", "TABLE['a'][1]"),
    "a helper": ("def helper(x):\n    return x + 1", "helper(1)"),
    "a helper's helper": ("N = 2\ndef deep(x):\n    return x * N\ndef helper(x):\n    return deep(x)", "helper(1)"),
    "helpers that call each other": ("def even(n):\n    return n == 0 or odd(n - 1)\n"
                                     "def odd(n):\n    return n > 0 and even(n - 1)", "even(4)"),
    "a helper under another name": ("def helper(x):\n    return x + 1\nmine = helper", "mine(1)"),
    "a lambda": ("twice = lambda x: 2 * x", "twice(2)"),
    "a decorated helper": ("import functools\n@functools.cache\ndef helper(x):\n    return x", "helper(1)"),
    "a class": ("class Box:\n    size = 3\n    def __init__(self, x):\n        self.x = x", "Box(1).x + Box.size"),
    "a dataclass": ("from dataclasses import dataclass\n@dataclass\nclass Box:\n    x: int\n"
                    "    def twice(self):\n        return 2 * self.x", "Box(1).twice()"),
    "a class without methods": ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Box:\n    x: int",
                                "Box(1).x"),
    "an object": ("class Box:\n    def f(self):\n        return 1\nbox = Box()", "box.f()"),
    "a tensor": ("T = torch.ones(2)", "T.sum()"),
    "a tensor, annotated": ("N = 2\nT: torch.Tensor = torch.ones(\n    N)", "T.sum()"),
    "the second of a line": ("A = 1; T = {torch.ones(2)}", "len(T)"),
    "a pattern": ("import re\nPAT = re.compile('a')", "PAT.findall('a')"),
    "a device": ("DEVICE = torch.device('cpu')", "DEVICE.type"),
    "a partial function": ("from functools import partial\nhelper = partial(max, 2)", "helper(3)"),
    "a closure": ("def make(n):\n    def inner():\n        return n\n    return inner\nhelper = make(2)", "helper()"),
    "a default and an annotation": ("BASE = 3\ndef helper(x: Nowhere = BASE) -> Nowhere:\n    return x", "helper()"),
}


@pytest.mark.parametrize("before, expression", NEEDS.values(), ids=NEEDS)
def test_what_an_answer_needs_is_kept_with_it(before, expression, capsys):
    body = MERGE.replace("    # my way of doing it", f"    assert str({expression})")
    cell(f"from __future__ import annotations\nimport torch\n{before}\n{body}")
    assert "is right" in capsys.readouterr().out
    found = kept()["01.2"]
    assert found.problem == ""
    function = load_answer(find("01.2"), found, exercises.explain)
    assert function([1, 2], (1, 2), 9) == [9] and function.__module__ != "__main__"


CANNOT = {
    "made by a loop": ("import torch\nfor T in [torch.ones(2)]:\n    pass", "T.sum()", "it uses T, a Tensor"),
    "two at once": ("import torch\nT, U = torch.ones(2), torch.ones(3)", "T.sum()", "it uses T, a Tensor"),
    "changed afterwards": ("import torch\nT = torch.ones(2)\nT += 1", "T.sum()", "it uses T, a Tensor"),
    "a function that sets it": ("import torch\ndef f():\n    global T\n    T = torch.ones(2)\nf()", "T.sum()",
                                "it uses T, a Tensor, and no statement T = ... in your cells makes it: make it inside"),
    "what that is made of": ("import torch\nfor T in [torch.ones(2)]:\n    pass\nU = T + 1", "U.sum()",
                             "it uses T, a Tensor"),
}


@pytest.mark.parametrize("before, expression, words", CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_written_down_is_named(before, expression, words):
    cell(f"{before}\n{MERGE.replace('    # my way of doing it', f'    assert str({expression})')}")
    found = kept()["01.2"]
    assert found.problem.startswith(words) and found.source == ""
    with pytest.raises(CannotBeWritten, match=words.split(",")[0]):
        load_answer(find("01.2"), found, exercises.explain)


SWIGLU = """\
@exercise("04.2")
def swiglu(x, gate, up, down):
    h = x @ gate.T
    return (h / (1 + (-h).exp()) * (x @ up.T) * TABLE[0]) @ down.T
"""


def test_the_last_statement_counts_and_an_earlier_cell_may_hold_it():
    names = cell("import torch\nTABLE = torch.zeros(1)")
    cell("TABLE = [torch.ones(1)]", names)
    names["In"].append("TABLE = (")  # no Python
    cell(SWIGLU, names)
    found = kept()["04.2"]
    assert found.needs == {"torch": "import torch", "TABLE": "TABLE = [torch.ones(1)]"} and found.problem == ""


@pytest.mark.parametrize("before, words", [
    ("TABLE = []\nTABLE.append(1.0 + 0j)\nTABLE[0] = torch.ones(1)", "the statements of your cells, run once more"),
    ("TABLE = [0 * torch.ones(1)]\nTABLE[0] += 1", "make something else of it: make it inside the function."),
    ("for TABLE in [torch.ones(1)]:\n    pass", "no statement TABLE = ... in your cells makes it"),
])
def test_an_answer_that_cannot_be_kept_is_named_at_once(before, words, capsys):
    names = cell(f"import torch\n{before}\n{SWIGLU}")
    first, second = capsys.readouterr().out.splitlines()
    assert "04.2 is right" in first
    assert second.startswith("  It works here, but cannot be kept for your engine of notebook 17: it uses TABLE, ")
    assert words in second and kept()["04.2"].source == ""
    cell(SWIGLU.replace("TABLE[0]", "1"), names)
    assert capsys.readouterr().out.count("\n") == 1 and kept()["04.2"].problem == ""


def test_an_answer_of_which_the_engine_has_no_use_is_not_talked_about(capsys):
    cell("import torch\nfor T in [torch.ones(1)]:\n    pass\n" + MERGE.replace("    # my", "    T.sum()\n    # my"))
    assert capsys.readouterr().out.count("\n") == 1 and kept()["01.2"].problem


def test_a_name_of_the_notebook_is_not_looked_for_in_it_under_another_name(monkeypatch):
    """PyTorch, once imported, makes the notebook `__mp_main__`, too, and an answer that was loaded has a module."""
    cell("import re\nPAT = re.compile('a')\n" + MERGE.replace("    # my", "    PAT.match('a')\n    # my"))
    load_answer(find("01.2"), kept()["01.2"], exercises.explain)
    names = cell("import re\nPAT = re.compile('a')\n")
    assert names["PAT"] is vars(sys.modules["your answer to 01.2"])["PAT"], "re caches"
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, module := type(sys)("__main__"))
    vars(module).update(names)
    cell(MERGE.replace("    # my", "    PAT.match('b')\n    # my"), names)
    assert kept()["01.2"].needs == {"re": "import re", "PAT": "PAT = re.compile('a')"}


def test_an_exit_in_a_kept_answer_is_an_error_of_it():
    cell(MERGE)
    gone = replace(kept()["01.2"], needs={"sys": "import sys", "TABLE": "TABLE = sys.exit()"})
    with pytest.raises(CannotBeWritten, match="cannot be loaded: SystemExit"):
        load_answer(find("01.2"), gone, exercises.explain)


ODD = "class Odd:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\nodd = Odd()"


@pytest.mark.parametrize("before", [ODD, "odd = []\nodd.append(odd)"])
def test_a_global_that_breaks_when_it_is_looked_at_breaks_no_cell(before, capsys):
    body = MERGE.replace("    # my way of doing it", "    assert odd is not None")
    cell(f"{before}\n{body}")
    assert "is right" in capsys.readouterr().out and kept()["01.2"].problem.startswith("its text cannot be had: R")


def test_an_answer_is_kept_where_the_course_is_not_installed(monkeypatch, own_file):
    """As in a folder of the repository that Python only finds."""
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    cell(MERGE)
    assert kept()["01.2"].course_version == "unknown"


def test_an_answer_without_a_text_does_not_take_the_place_of_one_with_a_text():
    cell(MERGE)
    exercises.exercise("01.2")(find("01.2").finished)
    names = cell("import torch\nT, U = torch.ones(2, 1)\n" + MERGE.replace("    # my", "    T.sum()\n    # my"))
    assert names["merge"]([1], (1, 2), 3) == [1]
    assert kept()["01.2"].problem == "" and "T.sum" not in kept()["01.2"].source


def test_other_kinds_of_callables_are_named():
    module_level = "it is not yours but course_lib.tokenizer's"
    for function, words in [(find("01.2").finished, module_level), (print, "it is no function with a `def`"),
                            (eval("lambda: 0"), "the source of <lambda> is not known")]:
        with pytest.raises(CannotBeWritten, match=words):
            write_down(function)


def test_a_module_of_the_readers_is_named(tmp_path, monkeypatch):
    (tmp_path / "reader_helpers.py").write_text("def helper():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    cell("import reader_helpers\n" + MERGE.replace("    # my", "    reader_helpers.helper()\n    # my"))
    assert "a file of your own" in kept()["01.2"].problem


def test_a_function_under_another_name_still_finds_itself():
    cell("""\
        @exercise("01.3")
        def by_rank(piece, ranks):
            parts = [piece[i:i + 1] for i in range(len(piece))] if isinstance(piece, bytes) else piece
            known = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ranks]
            if not known:
                return [ranks[part] for part in parts]
            i = min(known)[1]
            return encode_piece([*parts[:i], parts[i] + parts[i + 1], *parts[i + 2:]], ranks)
    """)
    found = kept()["01.3"]
    assert (found.name, found.needs, found.problem) == ("by_rank", {}, "")
    function = load_answer(find("01.3"), found, exercises.explain)
    assert function.__globals__["encode_piece"] is function


def test_a_loaded_answer_shows_its_lines_in_errors():
    written = write_down(cell("def f():\n    return nothing\n")["f"])
    function = load_written(written, "<your answer>")
    with pytest.raises(NameError) as error:
        function()
    assert "return nothing" in str(error.traceback[-1].statement)


def test_a_text_that_no_longer_passes_is_not_used():
    cell(MERGE)
    found = kept()["01.2"]
    for old, new, words in [("== pair", "!= pair", "no longer passes its check"), ("merged = []", "merged = [",
                            "cannot be loaded: SyntaxError"), ("def merge", "1 / 0\ndef merge", "ZeroDivisionError")]:
        with pytest.raises(CannotBeWritten, match=words):
            load_answer(find("01.2"), replace(found, source=found.source.replace(old, new)), exercises.explain)


# The file


def test_beside_every_progress_file_lies_its_own(tmp_path, monkeypatch):
    for name in ("anna.json", "ben.json"):
        monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / name))
        cell(MERGE.replace("my way", name))
    names = {path.name for path in tmp_path.iterdir() if path.suffix == ".json"}
    assert names == {"anna.json", "ben.json", "anna.answers.json", "ben.answers.json"}


@pytest.mark.parametrize("content", ["{", "[]", '{"answers": []}', '{"answers": {"01.2": 3}}', "\xff",
                                     '{"answers": {"01.2": {"name": "f", "source": 3}}}'])
def test_a_file_that_makes_no_sense_is_set_aside(content, own_file, capsys):
    path = own_file.with_name("progress.answers.json")
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="latin-1")
    cell(MERGE)
    assert "The file of your kept answers makes no sense: it is kept as progress.answers.json.unreadable-1" in \
        capsys.readouterr().out
    assert (own_file.parent / "progress.answers.json.unreadable-1").read_text(encoding="latin-1") == content
    assert list(kept()) == ["01.2"]


def test_what_a_later_version_adds_is_no_nonsense(own_file):
    cell(MERGE)
    path = own_file.with_name("progress.answers.json")
    data = json.loads(path.read_text())
    data["answers"]["01.2"]["mood"] = "good"
    path.write_text(json.dumps(data | {"format": 2}))
    assert kept()["01.2"].name == "merge"


def test_where_it_cannot_be_written_one_line_and_on(own_file, capsys, monkeypatch):
    own_file.parent.mkdir()
    own_file.with_name("progress.answers.json").mkdir()
    names = cell(MERGE)
    out = capsys.readouterr().out
    assert out.count("\n") == 2 and "Your answer is not kept (Not a regular file)" in out
    assert names["merge"]([1, 2], (1, 2), 9) == [9] and json.loads(own_file.read_text()) == {"passed": ["01.2"]}
    own_file.with_name("progress.answers.json").rmdir()
    monkeypatch.setattr(progress_file, "PATIENCE_S", 0.05)
    with progress_file.locked(own_file.with_name("progress.answers.json")):
        cell(MERGE)
    assert "Your answer is not kept (another kernel is writing it)" in capsys.readouterr().out


def test_beside_a_device_nothing_is_written(monkeypatch, capsys):
    before = set(os.listdir("/dev"))
    monkeypatch.setenv("COURSE_PROGRESS", "/dev/null")
    cell(MERGE)
    assert capsys.readouterr().out.count("not saved") == 1 and set(os.listdir("/dev")) == before


WRITER = """
import sys
from course_lib.classroom.checks import find
from course_lib.classroom.exercises import explain
from course_lib.classroom.kept_answers import keep
def merge(ids, pair, new_id): return ids
print("ready", flush=True)
sys.stdin.readline()
for i, name in enumerate(sys.argv[2:]):
    keep(find(name), merge, explain)
"""


def test_two_processes_lose_nothing(own_file, tmp_path):
    (tmp_path / "writer.py").write_text(WRITER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    shares = [[f"{n:02}.{i}" for n in notebooks for i in (1, 2, 3, 4)] for notebooks in ((1, 2, 3), (4, 6, 9))]
    writers = [subprocess.Popen([sys.executable, str(tmp_path / "writer.py"), "x", *share], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, env=environment) for share in shares]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert [writer.communicate(timeout=60)[0] for writer in writers] == ["", ""]
    assert sorted(kept()) == sorted([*shares[0], *shares[1]])
    assert {path.suffix for path in own_file.parent.iterdir()} == {".json", ".lock"}


# The switch, and where tests write


@pytest.mark.parametrize("value, on", [("0", False), (" off ", False), ("No", False), ("false", False), ("1", True),
                                       ("", True), ("yes", True)])
def test_the_switch_in_the_environment(value, on, monkeypatch, own_file, capsys):
    monkeypatch.setenv("COURSE_KEEP_ANSWERS", value)
    cell(MERGE)
    assert own_file.with_name("progress.answers.json").exists() == on
    assert capsys.readouterr().out.count("\n") == 1 and own_file.exists()


def test_the_switch_of_a_kernel_outweighs_the_environment(monkeypatch, own_file):
    cell(MERGE)
    keep_answers(False)
    cell(MERGE.replace("my way", "another way"))
    assert "my way" in kept()["01.2"].source, "what is there stays"
    monkeypatch.setenv("COURSE_KEEP_ANSWERS", "0")
    keep_answers()
    cell(MERGE.replace("my way", "another way"))
    assert "another way" in kept()["01.2"].source


def test_tests_and_notebook_kernels_write_into_a_temporary_home(monkeypatch):
    monkeypatch.undo()
    assert kept_answers.answers_path().parent == Path(os.environ["HOME"]).resolve()
    assert "course-home-" in os.environ["HOME"]


def test_in_a_kernel_the_text_of_cells_is_found(own_file):
    helper = "from collections import Counter\n\nclass Count:\n    def of(self, items):\n        return Counter(items)"
    body = '@exercise("01.1")\ndef count_pairs(ids):\n    # dict, as the card says\n' \
           "    return dict(Count().of(zip(ids, ids[1:])))"
    *_, said, _, off = type_cells(own_file, "from course_lib.classroom import exercise, keep_answers", helper, body,
                                  "keep_answers(False)", body.replace("# dict", "# off"))
    assert "is right" in said and "is right" in off
    found = kept()["01.1"]
    assert list(found.needs) == ["Counter", "Count"] and "# dict, as the card says" in found.source
    assert load_answer(find("01.1"), found, exercises.explain)([1, 2, 1, 2]) == {(1, 2): 2, (2, 1): 1}
