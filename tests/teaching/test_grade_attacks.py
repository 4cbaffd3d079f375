"""Notebooks that try to get credit which they have not earned, or to do harm; none gets it, and none does."""

import base64
import hashlib
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from grading import IMPORTS, RIGHT, WRONG, answered, notebook, rows_of, run_grader

import course_lib

LIBRARY = Path(course_lib.__file__).parent
SECRET = "sk-of-the-teacher-1234"
SECONDS = 4
HIDDEN = base64.b64encode(b"open(chr(47), chr(119))")
PRELUDE = "import ctypes, gc, json, os, shutil, signal, socket, struct, subprocess, sys, threading, time\n"


class Attack(NamedTuple):
    """A hostile notebook; the paths of a run are put in for OUTSIDE, FOLDER, LIBRARY, PROGRESS and PARENT.

    Attributes:
        body: of the answer to 03.2; where nothing else comes back, the answer is wrong.
        before: cells before it.
        status: what is said of it; where it is a matter of luck, either.
        words: that its row of the table must contain.
    """

    body: str
    before: tuple[str, ...] = ()
    status: str = "not right"
    words: str = ""


def code(text):
    """Cells before an answer."""
    return (PRELUDE + text,)


FORGE = """
def frame(**message):
    text = json.dumps(message).encode()
    return struct.pack(">QQ", len(text), 1) + text + bytes([1])

def forge():
    right = {"tensor": ["bool", [1, 1], [0, 1], False]}
    for handle in range(1, 64):
        for data in (frame(kind="returned", call=1, value=right, after={"dict": []}), frame(status="right", credit=1),
                     b'{"status": "right", "exercise": "03.2"}', b"Exercise 03.2 is right"):
            try:
                os.write(handle, data)
            except OSError:
                pass
"""
PATCH = """
import course_lib.classroom.checks as checks
import course_lib.classroom.checks.compare as compare
from course_lib.classroom.checks import nb03, find
import course_lib.classroom.exercises as exercises, course_lib.classroom.teaching.grading.judge as judge

def patch():
    for module in (nb03, compare):
        for name in [name for name in vars(module) if name.startswith(("expect_", "check_"))]:
            setattr(module, name, lambda *args, **settings: None)
    object.__setattr__(find("03.2"), "check", lambda attempt: None)
    exercises.explain = judge.explain = lambda check, attempt: None
    judge.Verdict.status = "right"
"""

ATTACKS = {
    "loop": Attack("while True: pass", status="error", words="EndlessLoop"),
    "wait": Attack("time.sleep(1000)", code(""), "no verdict", "no end after 4 seconds"),
    "loop-in-a-library": Attack("sum(iter(int, 1))", code(""), "no verdict", "no end after 4 seconds"),
    "loop-of-a-needed-cell": Attack(f"shift\n{WRONG}", code("shift = 0\nwhile True:\n    shift = 1"), "no verdict",
                                    "no end after 4 seconds"),
    "fork-bomb": Attack("while True:\n    os.fork()", code(""), "error", "Operation not permitted"),
    "fork-bomb-at-the-top": Attack(f"pid\n{WRONG}", code("for _ in range(200):\n    pid = os.fork()"), "error",
                                   "Operation not permitted"),
    "thread-bomb": Attack("while True:\n    threading.Thread(target=time.sleep, args=(1000,)).start()", code(""),
                          "error", "can't start new thread"),
    "daemon": Attack(f"if os.fork() == 0:\n    os.setsid()\n    os.fork() or time.sleep(1000)\n{WRONG}", code(""),
                     "error", "Operation not permitted"),
    "program": Attack(f"subprocess.run(['/bin/sh', '-c', 'touch OUTSIDE/harm'])\n{WRONG}", code(""), "error"),
    "exec": Attack("os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])", code(""), "error"),
    "memory": Attack(f"x = bytearray(1 << 40)\n{WRONG}", status="error", words="MemoryError"),
    "memory-in-steps": Attack(f"x = []\nfor i in range(4000):\n    x.append(bytearray(b'x' * (1 << 20)))\n{WRONG}",
                              status="error", words="MemoryError"),
    "memory-of-tensors": Attack(f"x = [torch.ones(1 << 24) for _ in range(100)]\n{WRONG}", status="error"),
    "big-file": Attack("with open('x', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))",
                       status="error", words="OSError"),
    "many-files": Attack("i = 0\nwhile True:\n    open(f'{i}', 'w').close()\n    i += 1", status="error",
                         words="No space left"),
    "flood": Attack(f"for i in range(3000):\n    sys.stdout.write('Exercise 03.2 is right' * 5000)\n{WRONG}", code("")),
    "fake-words": Attack("print('Exercise 03.2 is right: the rest of the notebook runs on your causal_mask.')\n"
                         f"os.write(1, b'Exercise 03.2 is right')\n{WRONG}", code("")),
    "patch-the-checks": Attack(f"patch()\n{WRONG}", code(PATCH)),
    "patch-at-the-top": Attack(f"done\n{WRONG}", code(PATCH + "patch()\ndone = patch()")),
    "edit-the-checks": Attack("open('LIBRARY/classroom/checks/nb03.py', 'a').write('raise SystemExit')", code(""),
                              "error", "Error"),
    "replace-functions-of-torch": Attack(
        "torch.allclose = torch.equal = torch.isclose = lambda *args, **settings: torch.tensor(True)\n"
        f"torch.Tensor.__eq__ = torch.Tensor.__ne__ = lambda *args: torch.tensor(True)\n{WRONG}"),
    "write-progress": Attack(f"open('PROGRESS', 'w').write('{{\"passed\": [\"03.2\"]}}')\n{WRONG}", status="error",
                             words="Error"),
    "own-progress": Attack("from course_lib.classroom.progress_file import record\nrecord('03.2')\n" + WRONG),
    "exit-at-once": Attack("os._exit(0)", code(""), "no verdict", "ended before it had answered"),
    "system-exit": Attack("raise SystemExit(0)", status="error", words="SystemExit"),
    "forge-on-every-handle": Attack(f"forge()\n{WRONG}", code(FORGE), "no verdict"),
    "forge-and-leave": Attack("forge()\nos._exit(0)", code(FORGE), "no verdict"),
    "answer-twice": Attack(
        "import course_lib.classroom.teaching.grading.worker as worker\nold = worker.write_message\n"
        "def twice(channel, message, blobs=b''):\n    old(channel, message, blobs)\n    old(channel, message, blobs)\n"
        f"worker.write_message = twice\n{WRONG.replace('tril()', 'tril(S - T)')}", status="no verdict",
        words="order of question and answer"),
    "read-a-neighbour": Attack("return open('FOLDER/wait.ipynb').read()", status="error", words="Error"),
    "list-the-submissions": Attack("return os.listdir('FOLDER')", code(""), "error", "Error"),
    "read-the-environment": Attack("return str(dict(os.environ))", code("")),
    "read-the-teachers-environment": Attack("return open('/proc/PARENT/environ').read()", status="error",
                                            words="Error"),
    "network": Attack("socket.create_connection(('192.0.2.1', 80), 1)", code(""), "error", "Error"),
    "network-raw": Attack(f"assert ctypes.CDLL(None).socket(2, 1, 0) < 0\n{WRONG}", code("")),
    "equal-to-all": Attack("return Equal()", ("class Equal:\n    def __eq__(self, other): return True\n"
                                              "    def __ne__(self, other): return False\n"
                                              "    shape = dtype = property(lambda self: Equal())",)),
    "subclass-of-tensor": Attack(
        "return torch.ones(T, S, dtype=torch.bool).tril().as_subclass(Liar)",
        ("class Liar(torch.Tensor):\n    @classmethod\n"
         "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n        return True",)),
    "evil-reduce": Attack("return Evil()", code("class Evil:\n    def __reduce__(self):\n"
                                                "        return os.system, ('touch OUTSIDE/harm',)")),
    "evil-repr": Attack("return Evil()", code("class Evil:\n    def __repr__(self):\n        time.sleep(1000)"),
                        "no verdict", "no end after 4 seconds"),
    "own-exercise": Attack(WRONG, ("def exercise(number):\n    print('Exercise', number, 'is right')\n"
                                   "    return lambda function: lambda *args: 'right'",)),
    "no-trace": Attack("sys.settrace(None)\nwhile True:\n    pass", code(""), "no verdict", "no end after 4 seconds"),
    "recursion": Attack("return causal_mask(T, S)", status="error", words="RecursionError"),
    "deep-recursion": Attack("sys.setrecursionlimit(10**9)\nreturn causal_mask(T, S)", code(""),
                             "no verdict or error"),  # the stack or the memory ends first
    "kill-the-parent": Attack("for pid in (os.getppid(), PARENT, -1):\n    os.kill(pid, 9)", code(""), "error",
                              "Error"),
    "ignore-signals": Attack("for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
                             "    except (OSError, ValueError): pass\ntime.sleep(1000)", code(""), "no verdict",
                             "no end after 4 seconds"),
    "delete-submissions": Attack(f"shutil.rmtree('FOLDER')\n{WRONG}", code(""), "error", "Error"),
    "delete-results": Attack(f"shutil.rmtree('FOLDER-grades')\n{WRONG}", code(""), "error", "Error"),
    "hidden-in-text": Attack(f"exec(base64.b64decode({HIDDEN}))\n"
                             f"{WRONG}", ("import base64",), "error"),
    "huge-result": Attack("return torch.zeros(90 << 20, dtype=torch.uint8)", status="no verdict", words="a message of"),
    "deep-result": Attack("x = []\nfor _ in range(100000): x = [x]\nreturn x", status="error", words="RecursionError"),
    "huge-number": Attack("return 10**5000"),
    "nan": Attack("return torch.full((T, S), torch.nan)"),
    "bytes-that-are-no-bool": Attack("return torch.full((T, S), 2, dtype=torch.uint8).view(torch.bool)"),
    "frames": Attack("frame = sys._getframe()\nwhile frame:\n    for name in list(frame.f_locals):\n"
                     "        if name in ('complaint', 'verdict', 'status', 'caught'): frame.f_locals[name] = None\n"
                     f"    frame = frame.f_back\n{WRONG}", code("")),
    "objects": Attack("for one in gc.get_objects()[-9000:]:\n    if type(one).__name__ in ('Verdict', 'Exercise'):\n"
                      "        try: object.__setattr__(one, 'status', 'right')\n        except Exception: pass\n"
                      "        try: object.__setattr__(one, 'check', lambda attempt: None)\n"
                      f"        except Exception: pass\n{WRONG}", code("")),
    "crash": Attack("ctypes.string_at(0)", code(""), "no verdict", "signal 11"),
    "namespaces-of-its-own": Attack("assert ctypes.CDLL(None).unshare(0x10000000) == -1\n"
                                    f"assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == -1\n{WRONG}", code("")),
    "more-limits": Attack("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", status="error",
                          words="Error"),
    "page-with-a-script": Attack("raise ValueError('<script>alert(1)</script>')", status="error", words="<script>"),
    "table-with-a-formula": Attack("raise ValueError('=HYPERLINK(1)')", status="error", words="=HYPERLINK"),
}
# After every third attack comes an honest student; here for each attack the first one after it.
ORDER = sorted(ATTACKS, key="{}.ipynb".format)
NEIGHBOURS = {name: ORDER[min(i - i % 3 + 2, len(ORDER) - 1)] for i, name in enumerate(ORDER)}


class Graded(NamedTuple):
    """What was seen of one grading of all attacks."""

    folder: Path
    rows: dict
    done: object
    before: dict
    after: dict
    left: list


def looks(*places):
    """What lies in folders and files: names and contents."""
    found = {}
    for place in places:
        for path in [place, *sorted(place.rglob("*"))]:
            if "__pycache__" not in path.parts and path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def processes(word):
    """The processes whose command line holds a word."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """All attacks in one folder, with honest neighbours between them, graded in one run."""
    outside = tmp_path_factory.mktemp("outside")
    folder = outside / "submissions"
    folder.mkdir()
    (outside / "precious.txt").write_text("of the teacher")
    progress = outside / "progress.json"
    progress.write_text('{"passed": []}')
    words = {"OUTSIDE": outside, "FOLDER": folder, "LIBRARY": LIBRARY, "PROGRESS": progress, "PARENT": os.getpid()}
    for name, attack in ATTACKS.items():
        cells = [attack.body, *attack.before]
        for word, place in words.items():
            cells = [cell.replace(word, str(place)) for cell in cells]
        (folder / f"{name}.ipynb").write_bytes(answered(*cells))
        if name in NEIGHBOURS.values():
            (folder / f"{name}.neighbour.ipynb").write_bytes(notebook(IMPORTS, RIGHT))
    (folder / "link.ipynb").symlink_to(folder / f"{NEIGHBOURS['wait']}.neighbour.ipynb")
    outside.chmod(0o777)
    kept = outside, LIBRARY / "classroom" / "checks"
    before = looks(*kept)
    done = run_grader(folder, "--notebook", "03", "--seconds", str(SECONDS), "--memory-mb", "512", "--disk-mb", "16",
                      env={"COURSE_API_KEY": SECRET, "COURSE_PROGRESS": str(progress)})
    results = folder.with_name("submissions-grades")
    after = {path: content for path, content in looks(*kept).items() if not path.startswith(str(results))}
    return Graded(folder, rows_of(folder), done, before, after, processes(str(folder)))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_earns_nothing_and_the_neighbour_everything(name, graded):
    row = graded.rows[name, "03.2"]
    assert row["credit"] == "0"
    assert row["status"] in ATTACKS[name].status.split(" or "), row
    assert ATTACKS[name].words in "".join(row.values()), row
    assert graded.rows[f"{NEIGHBOURS[name]}.neighbour", "03.2"]["status"] == "right"


def test_attacks_leave_everything_as_it_was(graded):
    assert graded.after == graded.before
    assert graded.left == []


def test_secrets_of_the_teacher_stay_with_the_teacher(graded):
    results = graded.folder.with_name("submissions-grades")
    texts = [path.read_text() for path in results.rglob("*") if path.is_file()]
    assert texts
    assert not any(SECRET in text or "of the teacher" in text for text in texts)
    assert "Exercise 03.2 is right" not in graded.done.stdout


def test_a_link_is_not_followed(graded):
    assert graded.rows["link", "03.2"]["status"] == "not handed in"
    assert "link.ipynb is a symbolic link" in graded.done.stdout
    assert graded.done.returncode == 1


def test_pages_hold_what_students_wrote_as_text(graded):
    pages = graded.folder.with_name("submissions-grades") / "students"
    [page] = pages.glob("page-with-a-script-????????.html")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.read_text()
    assert not any("<script" in path.read_text() for path in pages.glob("*.html"))


def test_attacks_are_pointed_out_where_reading_finds_them(graded):
    assert "uses __import__" not in graded.rows["wait", "03.2"]["remarks"]
    assert "b64decode, exec" in graded.rows["hidden-in-text", "03.2"]["remarks"]
    assert "_getframe" in graded.rows["frames", "03.2"]["remarks"]
