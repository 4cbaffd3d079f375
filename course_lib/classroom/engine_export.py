"""The reader's engine as one Python file: their functions as they typed them, and what puts them together."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.classroom.answer_source import CannotBeWritten, Written, compile_text
from course_lib.classroom.attempt import Attempt, usual_settings
from course_lib.classroom.checks import find
from course_lib.classroom.exercises import explain
from course_lib.classroom.kept_answers import KeptAnswer
from course_lib.classroom.whole_file import write_whole
from course_lib.config import require

NEW = "a file that is not there yet, or use --force"

HEAD = '''\
"""A language model's engine, made of functions that I wrote myself.

    python {command} "What is gravity?"

Mine are {mine}.
All else, from the weights to the loop, comes from course_lib {version}.
"""

from __future__ import annotations

'''
IMPORTS = {"sys": "import sys", "load": "from course_lib.checkpoint import load",
           "assemble": "from course_lib.classroom.my_engine import assemble",
           "SamplingParams": "from course_lib.config import SamplingParams"}
TAIL = '''\
MINE = {{
{table}
}}


def main(question: str) -> None:
    """Stream the answer to a question."""
    engine = assemble(load({model}), MINE{options})
    for text in engine.stream(question, SamplingParams(temperature=0){draft}):
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What is gravity?")
'''
TAKEN = {"annotations", "MINE", "main"}  # other names of the file's own


class Definition(NamedTuple):
    """A name of the file, the code that makes it, and what stands above that in a comment."""

    name: str
    code: str
    title: str


def export_text(answers: Mapping[str, KeptAnswer], name: str, version: str, *, model: str = "pocket",
                draft: str | None = None, **options: int | None) -> str:
    """The file's text.

    Where two answers mean different things by one name, the second one's is renamed, and nothing else is changed.

    Args:
        answers: by exercise; all can be loaded.
        name: of the file.
        version: of the library.
        model, draft: that the file loads, by name.
        options: `bits` and `group_size` of `MyEngine`.

    Raises:
        CannotBeWritten: an answer does not pass its check under another name.
    """
    made = {name: Definition(name, line, "") for name, line in IMPORTS.items()}
    names = {key: add(made, key, answer.written) for key, answer in answers.items()}
    imports = sorted((d.code for d in made.values() if is_import(d.code)),
                     key=lambda line: (line.split()[1].startswith("course_lib"), line.startswith("from"), line))
    others = [d for d in made.values() if not is_import(d.code)]
    blocks = [f"# {d.title}\n{d.code}" if d.title else d.code for d in others]
    table = "\n".join(f'    "{key}": {function},' for key, function in names.items())
    mine = ",\n".join(f"{find(key).title} ({key})" for key in answers) or "none yet"
    command = shlex.quote(name).replace("\\", r"\\").replace('"', r"\"")  # as a shell and a docstring read it
    head = HEAD.format(command=command, mine=mine, version=version)
    chosen = "".join(f", {option}={value}" for option, value in options.items() if value is not None)
    drafted = f', draft=engine.draft("{draft}")' if draft else ""
    tail = TAIL.format(table=table, model=json.dumps(model), options=chosen, draft=drafted)
    text = "\n\n\n".join([head + "\n".join(imports), *blocks, tail])
    check(text, {key: names[key] for key, answer in answers.items() if names[key] != answer.name})
    return text


def add(made: dict[str, Definition], exercise_id: str, written: Written) -> str:
    """Add the definitions of an answer, under other names where those are taken; the name of its function."""
    renamed: dict[str, str] = {}
    suffix = "_" + exercise_id.replace(".", "_")
    title = f"Exercise {exercise_id}: {find(exercise_id).title}"
    for name, code in [*written.needs.items(), (written.name, written.source)]:
        own = written.name == name and code == written.source
        code = rename(code, {old: new for old, new in renamed.items() if old != name})
        if name in TAKEN or (name in made and made[name].code != code):
            renamed[name] = name + suffix
            code = rename(code, {name: renamed[name]})
        final = renamed.get(name, name)
        if final not in made or own:
            made[final] = Definition(final, code, title if own else "")
    return renamed.get(written.name, written.name)


def rename(code: str, names: Mapping[str, str]) -> str:
    """The code with global names replaced, where it reads, defines or imports them; comments and texts stay."""
    lines, places = code.splitlines(), []
    for node in ast.walk(ast.parse(code)) if names else ():
        if isinstance(node, ast.Name) and node.id in names:
            places.append((node.lineno, node.col_offset, node.id))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            line = lines[node.lineno - 1].encode()
            places.append((node.lineno, line.index(node.name.encode(), node.col_offset + 3), node.name))
        elif isinstance(node, ast.alias) and (node.asname or node.name) in names:
            return f"{code.removesuffix(f' as {node.asname}')} as {names[node.asname or node.name]}"
    for line, column, name in sorted(set(places), reverse=True):
        text = lines[line - 1].encode()
        lines[line - 1] = (text[:column] + names[name].encode() + text[column + len(name.encode()) :]).decode()
    return "\n".join(lines)


def is_import(code: str) -> bool:
    """Whether a piece of code is an import line."""
    return code.startswith(("import ", "from "))


def check(text: str, renamed: Mapping[str, str]) -> None:
    """Run the checks of those answers whose text was touched, on the functions of the file."""
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile_text(text, "<exported>"), names)
    for key, name in renamed.items():
        with usual_settings():
            complaint = explain(find(key).check, Attempt(names[name], find(key).finished))
        if complaint:
            raise CannotBeWritten(f"{key} cannot be exported beside the others: {'; '.join(complaint[-2:])}")


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file in one step: it is there as a whole, or not at all.

    Args:
        force: replace one that is there.

    Raises:
        ValueError: there is one already.
        OSError: it cannot be written.
    """
    require(force or not path.exists(), "--to", str(path), NEW)
    try:
        write_whole(path, text, new=not force)
    except FileExistsError:
        require(False, "--to", str(path), NEW)
