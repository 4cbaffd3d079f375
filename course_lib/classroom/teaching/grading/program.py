"""From a notebook to the statements that each of its answers needs.

A whole notebook takes a minute and makes figures that nobody looks at here. So of its cells only those statements
run that bind a name which the answer reads, or change the value of one, and so on for the names that those read; in
the notebook's order. Nothing in this module runs a student's code.
"""

from __future__ import annotations

import ast
import builtins
import dis
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

from IPython.core.inputtransformer2 import TransformerManager

from course_lib.classroom.answer_source import read_names
from course_lib.classroom.checks import find

MOST_CELLS, MOST_CODE = 2000, 2_000_000  # characters, of all cells together
MENTION = re.compile(r"^\s*@\s*(?:\w+\.)*exercise\(\s*[\"']([^\"']{1,20})[\"']", re.M)
ALWAYS = "*"  # among the names that a statement binds: it may bind any


class UnreadableNotebook(ValueError):
    """A file that is no notebook; the message says why."""


@dataclass(frozen=True, eq=False)
class Step:
    """One statement outside functions.

    Attributes:
        cell: its number in the notebook, from 1.
        text: of the whole cell, for error messages.
        node: the statement, as a module.
        name: that it defines, if it is a function.
        exercise: the id, if it is an answer.
        finished: the id of an exercise whose finished version the name gets; then the statement does not run.
        binds, changes, reads: global names.
    """

    cell: int
    text: str
    node: ast.Module
    name: str = ""
    exercise: str = ""
    finished: str = ""
    binds: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Program:
    """What has to run for one answer.

    Attributes:
        exercise_id: of the answer.
        name: of its function.
        steps: in order, with the answer itself.
        answer: the answer's own step.
        remarks: what the teacher may want to look at.
    """

    exercise_id: str
    name: str
    steps: list[Step]
    answer: Step
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Notebook:
    """A notebook taken apart.

    Attributes:
        steps: all statements, in order.
        broken: by exercise id, why its cell is no Python.
        problems: cells that could not be read, in words.
    """

    steps: list[Step]
    broken: dict[str, str]
    problems: list[str]

    @property
    def exercises(self) -> list[str]:
        """The ids of its answers, read or not."""
        return sorted({step.exercise for step in self.steps if step.exercise} | self.broken.keys())


def code_cells(data: bytes) -> list[tuple[int, str]]:
    """Number and source of each code cell of a notebook file.

    Raises:
        UnreadableNotebook: it is none.
    """
    try:
        content = json.loads(data.decode("utf-8-sig"))
        cells = content["cells"]
        sources = [(i + 1, cell["source"]) for i, cell in enumerate(cells) if cell["cell_type"] == "code"]
        found = [(i, source if isinstance(source, str) else "".join(source)) for i, source in sources]
    except UnicodeDecodeError as error:
        raise UnreadableNotebook(f"it is not UTF-8 (byte {error.start:,})") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableNotebook("it is not JSON, so it is no notebook or a part of one") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableNotebook("it is JSON and no notebook of format 4") from error
    if len(cells) > MOST_CELLS or sum(len(source) for _, source in found) > MOST_CODE:
        raise UnreadableNotebook(f"it has more than {MOST_CELLS:,} cells or {MOST_CODE:,} characters of code")
    return found


def read_notebook(data: bytes) -> Notebook:
    """Take a notebook apart.

    Raises:
        UnreadableNotebook: the file is none.
    """
    steps, broken, problems = [], {}, []
    for cell, source in code_cells(data):
        try:
            steps += steps_of(cell, source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            why = f"cell {cell} is not Python: {type(error).__name__}{line}"
            why += f": {error.msg}" if isinstance(error, SyntaxError) else ""
            problems.append(why)
            broken |= dict.fromkeys(MENTION.findall(source), why)
    return Notebook(steps, broken, problems)


def steps_of(cell: int, source: str) -> Iterator[Step]:
    """The statements of a cell; what IPython alone understands is translated.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a student's "\d"
        try:
            body = ast.parse(source).body
        except SyntaxError:
            body = ast.parse(TransformerManager().transform_cell(source)).body
        for node in body:
            yield step_of(cell, source, node)


def step_of(cell: int, source: str, node: ast.stmt) -> Step:
    """One statement, and the names that it deals with; a function loses its `@exercise`."""
    name, exercise = getattr(node, "name", ""), ""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        ids = [exercise_id for one in node.decorator_list if (exercise_id := exercise_of(one))]
        exercise = ids[0] if ids else ""
        node.decorator_list = [one for one in node.decorator_list if not exercise_of(one)]
    module = ast.Module([node], [])
    code = compile(module, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    binds = set(stored(code))
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        binds.add(ALWAYS)
    return Step(cell, source, module, name, exercise, binds=frozenset(binds), changes=frozenset(changed(node)),
                reads=frozenset(set(read_names(code)) - vars(builtins).keys()))


def exercise_of(decorator: ast.expr) -> str:
    """The id in `@exercise("03.1")`; "" for any other decorator."""
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "exercise":
        values = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        if values and isinstance(values[0], ast.Constant) and isinstance(values[0].value, str):
            return values[0].value[:20]
    return ""


def stored(code: CodeType, outside: bool = True) -> Iterator[str]:
    """The global names that a piece of code binds, in its functions too where they say `global`."""
    wanted = ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME") if outside else ("STORE_GLOBAL",)
    yield from (i.argval for i in dis.get_instructions(code) if i.opname in wanted)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from stored(inner, outside=False)


def changed(node: ast.AST) -> Iterator[str]:
    """The names whose values a statement changes in place: `x[0] = 1`, `x.a = 1`, `x.append(1)`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        yield from root(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        yield from root(node.value.func)
    for child in ast.iter_child_nodes(node):
        yield from changed(child)


def root(node: ast.AST) -> Iterator[str]:
    """The name at the left end of `name.a[0].b`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def programs(notebook: Notebook) -> list[Program]:
    """One for each exercise that the notebook answers: for its last answer that is more than a stub."""
    answers: dict[str, list[Step]] = {}
    for step in notebook.steps:
        if step.exercise and known(step.exercise):
            answers.setdefault(step.exercise, []).append(step)
    made = []
    for _, found in sorted(answers.items()):
        tried = [step for step in found if not stub(step)] or found
        remarks = [f"{len(tried)} answers; the last one counts"] if len(tried) > 1 else []
        made.append(program_for(notebook, tried[-1], remarks))
    return made


def known(exercise_id: str) -> bool:
    """Whether there is such an exercise."""
    try:
        find(exercise_id)
    except ValueError:
        return False
    return True


def stub(step: Step) -> bool:
    """Whether the body is a docstring, `...` and `pass`."""
    def nothing(node: ast.stmt) -> bool:
        return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return all(map(nothing, step.node.body[0].body))


def program_for(notebook: Notebook, answer: Step, remarks: list[str]) -> Program:
    """The steps that an answer needs; for names that no cell before it binds, later cells are asked."""
    at = notebook.steps.index(answer)
    before = [as_finished(step, answer) for step in notebook.steps[:at]]
    needed = closure([*before, answer], answer)
    missing = needed - {name for step in (*before, answer) for name in step.binds} - vars(builtins).keys()
    later = [step for step in notebook.steps[at + 1 :] if step.binds & missing and step.exercise != answer.exercise]
    steps = [*before, answer, *(as_finished(step, answer) for step in later)]
    needed = closure(steps, answer)
    chosen = [step for step in steps if step is answer or wanted(step, needed)]
    return Program(answer.exercise, answer.name, chosen, answer, remarks)


def as_finished(step: Step, answer: Step) -> Step:
    """Another exercise's answer becomes the finished version, so that each is judged for itself."""
    if not step.exercise or step.exercise == answer.exercise or not known(step.exercise):
        return step
    return Step(step.cell, step.text, step.node, step.name, finished=step.exercise, binds=step.binds)


def closure(steps: list[Step], answer: Step) -> set[str]:
    """All names that the answer reads, directly or not."""
    needed, size = set(answer.reads), -1
    while size != len(needed):
        size = len(needed)
        for step in steps:
            if wanted(step, needed):
                needed |= step.reads
    return needed


def wanted(step: Step, needed: set[str]) -> bool:
    """Whether a statement makes, or changes, what is needed."""
    return bool(ALWAYS in step.binds or step.binds & needed or step.changes & needed)
