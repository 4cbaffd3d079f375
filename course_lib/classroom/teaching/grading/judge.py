"""One submission judged: the checks run here, where no student's code does, on a function that is elsewhere."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from course_lib.classroom.attempt import usual_settings
from course_lib.classroom.checks import find, nb10
from course_lib.classroom.checks.compare import cut
from course_lib.classroom.exercises import explain
from course_lib.classroom.teaching.grading.calls import RemoteAttempt, RemoteFunction
from course_lib.classroom.teaching.grading.channel import Channel, Gone, OutOfTime, read_message
from course_lib.classroom.teaching.grading.children import ChildFailed, in_child
from course_lib.classroom.teaching.grading.program import Program, UnreadableNotebook, programs, read_notebook
from course_lib.classroom.teaching.grading.remarks import remarks
from course_lib.classroom.teaching.grading.sandbox import GRACE_S, Limits, Sandbox, Worker
from course_lib.classroom.teaching.grading.submissions import Submission, read_file
from course_lib.classroom.teaching.grading.values import Malformed
from course_lib.classroom.teaching.grading.worker import work

RIGHT, WRONG, ERROR, STUB, BROKEN, NONE, MISSING = (
    "right", "not right", "error", "not attempted", "not Python", "no verdict", "not handed in")
BETTER = (MISSING, STUB, NONE, BROKEN, ERROR, WRONG, RIGHT)
FIELDS = ("call", "expected", "got", "differs", "likely")
JUDGE_MEMORY = 4 << 30  # bytes
WATCH_S, READ_S, SPARE_S, PATIENCE_S = 0.2, 60.0, 10.0, 1.0
NO_SANDBOX, NO_MEMORY = 124, 123
PROBLEMS_KEPT = 5


class SandboxFailed(RuntimeError):
    """A student's process could not be started, which is no student's fault."""


@dataclass
class Verdict:
    """What came of one answer.

    Attributes:
        exercise: its id.
        status: one of the words above; only "right" earns credit.
        lines: what a notebook would print under the headline.
        remarks: for the teacher.
        problems: statements that raised before the answer was called.
        file, cell: where it stands.
        seconds: that its process ran.
        reported: whether the judge had to take the change of an argument, or the memory that a call needed, from the
            student's process.
    """

    exercise: str
    status: str
    lines: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    file: str = ""
    cell: int = 0
    seconds: float = 0.0
    reported: bool = False

    @property
    def credit(self) -> int:
        """1 for a right answer, else 0."""
        return int(self.status == RIGHT)

    @property
    def fields(self) -> dict[str, str]:
        """Call, expected, got, differs and likely, where a check said them."""
        found = (line.partition(":") for line in self.lines)
        return {name: text.strip() for name, colon, text in found if colon and name in FIELDS}


def judge(submission: Submission, sandbox: Sandbox, wanted: Callable[[str], bool]) -> tuple[list[Verdict], list[str]]:
    """All verdicts on what a student sent in, and what could not be read.

    Of an exercise that several notebooks answer, the best answer counts.

    Args:
        wanted: which exercise ids to judge.

    Raises:
        SandboxFailed: no process could be started.
    """
    best: dict[str, Verdict] = {}
    problems = list(submission.problems)
    for path in submission.files:
        try:
            found, said = judge_file(path, sandbox, wanted)
        except UnreadableNotebook as error:
            problems.append(f"{path.name}: {error}")
            continue
        problems += [f"{path.name}: {one}" for one in said]
        for verdict in found:
            verdict.file = path.name
            other = best.get(verdict.exercise)
            if other is None or BETTER.index(verdict.status) > BETTER.index(other.status):
                best[verdict.exercise] = verdict
    return [best[exercise_id] for exercise_id in sorted(best)], problems


def judge_file(path: Path, sandbox: Sandbox, wanted: Callable[[str], bool]) -> tuple[list[Verdict], list[str]]:
    """The verdicts on one notebook, and what could not be read of it. It is taken apart in a process of its own.

    Raises:
        UnreadableNotebook: it is none.
        SandboxFailed: no process could be started.
    """
    data = read_file(path)
    ids = ask_child(lambda: told(lambda: exercises_in(data)), READ_S)
    if "unreadable" in ids:
        raise UnreadableNotebook(ids["unreadable"])
    chosen = [exercise_id for exercise_id in ids["answers"] if wanted(exercise_id)]
    verdicts = [Verdict(i, BROKEN, [why]) for i, why in ids["broken"].items() if wanted(i)]
    seconds = sandbox.limits.seconds + READ_S + GRACE_S + SPARE_S
    for exercise_id in chosen:
        try:
            found = in_child(lambda exercise_id=exercise_id: asdict(judge_one(data, exercise_id, sandbox)), seconds)
            verdicts.append(Verdict(**found))
        except ChildFailed as error:
            verdicts.append(Verdict(exercise_id, NONE, [f"the judge of this answer did not finish: {error}"]))
    if any(verdict.status == NONE and verdict.lines[:1] == [SandboxFailed.__doc__] for verdict in verdicts):
        raise SandboxFailed(SandboxFailed.__doc__)
    return verdicts, ids["problems"]


def ask_child(function: Callable[[], dict], seconds: float) -> dict:
    """`in_child`, where a failure means that the notebook cannot be read."""
    try:
        return in_child(function, seconds)
    except ChildFailed as error:
        raise UnreadableNotebook(f"it cannot be read: {error}") from error


def told(function: Callable[[], dict]) -> dict:
    """What a function returns, or why the notebook cannot be read."""
    try:
        return function()
    except UnreadableNotebook as error:
        return {"unreadable": str(error)}


def exercises_in(data: bytes) -> dict[str, Any]:
    """The ids that a notebook answers, those whose cells are no Python, and other problems."""
    notebook = read_notebook(data)
    answers = [program.exercise_id for program in programs(notebook)]
    unknown = [f"there is no exercise {i!r}" for i in notebook.exercises if i not in {*answers, *notebook.broken}]
    broken = {i: why for i, why in notebook.broken.items() if i not in answers}
    return {"answers": answers, "broken": broken, "problems": [*notebook.problems, *unknown][:PROBLEMS_KEPT]}


def judge_one(data: bytes, exercise_id: str, sandbox: Sandbox) -> Verdict:
    """Judge one answer of a notebook; this process ends afterwards."""
    limit_memory()
    [program] = [one for one in programs(read_notebook(data)) if one.exercise_id == exercise_id]
    began = time.monotonic()
    verdict = judge_program(program, sandbox)
    verdict.cell, verdict.seconds = program.answer.cell, time.monotonic() - began
    verdict.remarks = remarks(program) + verdict.remarks
    return verdict


def limit_memory() -> None:
    """Let a check on an absurd result run out of memory here and not on the whole machine."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + JUDGE_MEMORY, most))


def judge_program(program: Program, sandbox: Sandbox) -> Verdict:
    """Start the student's process, run the check against it, end it."""
    worker = sandbox.start(lambda end: work(Channel(end), program))
    channel = Channel(worker.end, time.monotonic() + sandbox.limits.seconds)
    why: Exception | None = None
    with watched_disk(worker, sandbox) as full:
        try:
            verdict, why = ask(program, channel)
        except (OutOfTime, Gone, Malformed) as error:
            verdict, why = Verdict(program.exercise_id, NONE), error
        finally:
            status = worker.stop(PATIENCE_S if isinstance(why, Gone) else 0.0)
    if status == NO_SANDBOX:
        return Verdict(program.exercise_id, NONE, [SandboxFailed.__doc__])
    if why is not None:
        reason = f"it wrote more than {sandbox.limits.disk_mb} MB" if full else words(why, status, sandbox.limits)
        verdict = Verdict(program.exercise_id, NONE, [reason], problems=verdict.problems)
    return verdict


def ask(program: Program, channel: Channel) -> tuple[Verdict, Exception | None]:
    """The verdict of the check, and what broke the conversation, if something did; then the verdict is none.

    Raises:
        OutOfTime, Gone, Malformed: the student's function never came to be.
    """
    exercise = find(program.exercise_id)
    hello, _ = read_message(channel)
    said = hello.get("problems")
    problems = [cut(str(one), 300) for one in said[:PROBLEMS_KEPT]] if isinstance(said, list) else []
    if hello.get("kind") == "stub":
        return Verdict(exercise.id, STUB), None
    if hello.get("kind") != "ready":
        return Verdict(exercise.id, ERROR, ["the function was not defined"], problems=problems), None
    remote = RemoteFunction(channel, program.name)
    complaint = complaint_of(exercise.check, RemoteAttempt(remote, exercise.finished), remote)
    if complaint is None:
        status = RIGHT if remote.calls else NONE
        verdict = Verdict(exercise.id, status, [] if remote.calls else ["the function was never called"])
    else:
        verdict = Verdict(exercise.id, WRONG if "not right" in complaint[0] else ERROR, complaint[1:])
    verdict.problems, verdict.reported = problems, remote.reported
    return verdict, remote.broken


def complaint_of(check: Callable, attempt: RemoteAttempt, remote: RemoteFunction) -> list[str] | None:
    """What `@exercise` would say. For an error, the lines of the student's come from the student's process."""
    caught: list[BaseException] = []

    def checked(attempt: RemoteAttempt) -> None:
        try:
            check(attempt)
        except BaseException as error:
            caught.append(error)
            raise

    with usual_settings(), mock.patch.object(nb10, "peak_bytes", remote.peak_bytes):
        complaint = explain(checked, attempt)
    if complaint and caught and caught[-1] is remote.error and complaint[0].startswith("stopped"):
        return [complaint[0], f"call: {attempt.last_call}", *remote.lines]
    return complaint


def words(why: Exception, status: int, limits: Limits) -> str:
    """Why there is no verdict."""
    if isinstance(why, OutOfTime):
        return f"no end after {limits.seconds:g} seconds"
    if isinstance(why, Malformed):
        return f"its process did not keep to the order of question and answer: {why}"
    if status == NO_MEMORY:
        return f"it needed more than {limits.memory_mb:,} MB of memory"
    if status > 128:
        return (f"its process was ended by signal {status - 128}: as a rule too much memory or processor time, "
                "or a crash inside a library")
    return "its process ended before it had answered"


@contextmanager
def watched_disk(worker: Worker, sandbox: Sandbox) -> Iterator[list[bool]]:
    """Stop the process when its folder on the disk is too full; not needed where it writes to memory of its own.

    The list is empty unless that happened.
    """
    full: list[bool] = []
    if "mounts" in sandbox.layers:
        yield full
        return

    def look(number: int, frame: Any) -> None:
        if not full and worker.files_mb() > sandbox.limits.disk_mb:
            full.append(True)
            worker.interrupt()

    old = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, WATCH_S, WATCH_S)
    try:
        yield full
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def missing(exercise_ids: Sequence[str], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """A verdict for each exercise, in order; those without an answer were not handed in."""
    found = {verdict.exercise: verdict for verdict in verdicts}
    return [found.get(i, Verdict(i, MISSING)) for i in exercise_ids]
