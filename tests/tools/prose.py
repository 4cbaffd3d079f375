"""What a program can see of the prose: numbers that no run backs, words and sentences that do not read.

    python tests/tools/prose.py notebooks/03*.ipynb     list the findings; exit 1 if there are any
    python tests/tools/prose.py course_lib/classroom/checks/*.py    the same of what a module says
"""

from __future__ import annotations

import ast
import builtins
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

sys.path.insert(0, str(Path(__file__).parents[1]))
from notebooks import read_as_is

LONGEST, SAID_IN_CODE, PRINTED = 32, 45, 14  # words: of a sentence, of a string in code, of a printed string
COLUMNS, OPENING = 88, 8
CORE, WORDS, LINES = 60, 90, 15  # minutes of a core path; words of text and lines of code and output read in a minute
LEGEND = "B T S H Hkv Dh D V L F".split()
UNFOLDS = r"</summary>\s*\n\s*\n|<details>(?:(?!</details>).)*\n```"
SPOKEN = r'(?:alt|aria-label)="([^"]*)"'
HIDDEN = {"source_hidden": True, "outputs_hidden": True}
STUCK = "# Stuck? Remove a # and run this cell.\n# hint({0!r})\n# solution({0!r})"
HEADING = re.compile(r"### Exercise (\d+)\.(\d+) · (build|predict|find the bug) · (\d+) min · (warm-up|core|stretch)")

# Words that give a translation away, or that a plain writer does without.
FLAGGED = (r"\bbehind\b", r"\bmend(s|ed|ing)?\b", r"\bhand(s|ed|ing)? (over|back|on)\b", r"\bdear(er|est)?\b",
           r"\bso many\b", r"\bas (it|they) (is|are)\b(?! \w+(ed|en|ing|wn|ft)\b)", r"\bof today\b",
           r"\bin (its|their) place\b", r"\bwhoever\b", r"\bhardly any\b", r"\bNeeded:", r"\bthereby\b",
           r"\bthereof\b", r"\bamong them\b", r"\bstands? for\b", r"\bdive\b", r"\bsimply\b", r"\bnote that\b",
           r"\bfascinating\b", r"\bdelve\b", r"\bcrucial\b")

SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "K": 1e3, "M": 1e6, "B": 1e9,
          "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ms": 1e-3, "µs": 1e-6}
WRITTEN = re.compile(r"(?<![\w.,])[-−]?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\d])\s?(%|[A-Za-zµ]+\b)?")


class Number(NamedTuple):
    """A number as it is written: its value, the digits after its point, its unit, and how it stands in the text."""

    value: float
    decimals: int
    unit: str
    text: str
    start: int


def numbers_in(text: str) -> list[Number]:
    """The numbers of a text, in order.

    >>> [(n.value, n.decimals, n.unit) for n in numbers_in("4,096 rows, 1.07 GB and 12 %")]
    [(4096.0, 0, 'rows'), (1.07, 2, 'GB'), (12.0, 0, '%')]
    """
    found = []
    for match in WRITTEN.finditer(text):
        whole, part, unit = match[1], match[2] or "", match[3] or ""
        found.append(Number(float(whole.replace(",", "") + part), max(len(part) - 1, 0), unit, match[0], match.start()))
    return found


def backed(number: Number, values: Sequence[float]) -> bool:
    """Whether one of the values, rounded as the number is, gives the number; a percentage may be of a share.

    >>> [backed(numbers_in(text)[0], [value]) for text, value in (("0.11", 0.1132), ("93 %", 0.9291), ("12", 12.6))]
    [True, True, False]
    """
    half = 0.5 * 10.0**-number.decimals * (1 + 1e-9)
    scales = [1.0, *({0.01} if number.unit == "%" else set()), *filter(None, [SCALES.get(number.unit)])]
    return any(abs(abs(value) - number.value * scale) <= half * scale for value in values for scale in scales)


# What a notebook says, and where


def plain(markdown: str) -> str:
    """Markdown without what is no prose: fences, pictures, targets of links, tags, code that is not a bare number."""
    text = re.sub(r"```.*?```|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|</?\w[^>]*>", " ", markdown, flags=re.S)
    text = re.sub(r"`([^`]*)`", lambda m: m[1] if re.fullmatch(r"[\d.,% −-]+", m[1]) else " ", text)
    text = re.sub(r"^#+ (Exercise|Pencil) .*$|^# \d\d · .*$", " ", text, flags=re.M)
    text = re.sub(r"\$[^$]+\$", " ", text)
    return unescape(text)


def is_free(number: Number, text: str) -> bool:
    """Numbers that need no backing: up to ten, years, minutes to read, the numbers of notebooks and names of models."""
    before, after = text[max(0, number.start - 14) : number.start], text[number.start : number.start + 24]
    small = number.decimals == 0 and number.value <= 10 and number.unit != "%"
    year = number.decimals == 0 and 1900 <= number.value <= 2035 and number.unit == ""
    named = re.search(r"(notebooks?|exercises?|section|figure|chapter|and|to|,)\s*$", before, re.I) and \
        re.match(r"(0\d|1[0-7])\b(?!\.\d)|\d{1,2}\.\d\b", after) and re.search(r"notebook|exercise", text, re.I)
    named = named or (re.search(r"\([\d, and]*$", before) and re.match(r"(0\d|1[0-7])\b(?!\.)", after))
    minutes = re.match(r"\d+ (more )?min", after)
    model = re.fullmatch(r"[\d.]+B", number.text)  # Llama 3 8B
    return bool(small or year or named or minutes or model)


def values_of(cell: NotebookNode) -> list[float]:
    """All numbers in a code cell and its outputs."""
    texts = [cell.source]
    for output in cell.get("outputs", []):
        texts += [output.get("text", ""), *(words_of(data) for kind, data in output.get("data", {}).items()
                                            if kind.startswith("text/"))]
    found = []
    for text in texts:
        for number in numbers_in(text):
            found.append(number.value)
            found += [number.value * scale for unit, scale in SCALES.items() if unit == number.unit]
            found += [number.value / 100] * (number.unit == "%")
    return found


def words_of(html: str) -> str:
    """What a reader gets of some HTML or text: what stands between tags, and the descriptions of pictures."""
    html = re.sub(r"<style>.*?</style>", " ", html, flags=re.S)
    return unescape(re.sub(r"</?[a-z][^>]*>", lambda m: f" {' '.join(re.findall(SPOKEN, m[0]))} ", html))


def sections(notebook: NotebookNode) -> list[list[NotebookNode]]:
    """The cells from one `## ` heading to the next."""
    parts: list[list[NotebookNode]] = [[]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            parts.append([])
        parts[-1].append(cell)
    return parts


def facts(number: str) -> tuple[dict[str, float], dict[str, str]]:
    """COMPUTED and KNOWN of a notebook, given its two digits."""
    try:
        module = importlib.import_module(f"facts.nb{number}")
    except ModuleNotFoundError:
        return {}, {}
    return getattr(module, "COMPUTED", {}), getattr(module, "KNOWN", {})


def lint_numbers(notebook: NotebookNode, computed: dict[str, float], known: dict[str, str]) -> Iterator[str]:
    """Numbers that neither a cell of their section backs, nor, with three digits, another cell, nor a fact."""
    parts = sections(notebook)
    everything = [value for cell in notebook.cells if cell.cell_type == "code" for value in values_of(cell)]
    for place, part in enumerate(parts):
        near = [value for cell in part if cell.cell_type == "code" for value in values_of(cell)]
        for cell in part:
            if cell.cell_type != "markdown":
                continue
            text = plain(cell.source)
            outer = place in (0, len(parts) - 1) or part[0].source.startswith("## What you can now say")
            for number in numbers_in(text):
                wide = outer or len(f"{number.value:.{number.decimals}f}".replace(".", "").strip("0")) >= 3
                if is_free(number, text) or backed(number, everything if wide else near):
                    continue
                if not any(in_words(number, text, words) and (value is None or backed(numbers_in(words)[0], [value]))
                           for words, value in [*computed.items(), *((words, None) for words in known)]):
                    yield f"{cell.id}: no cell{'' if wide else ' of this section'} backs {number.text.strip()!r}: " \
                          f"…{' '.join(text[max(0, number.start - 40) : number.start + 30].split())}…"


def in_words(number: Number, text: str, words: str) -> bool:
    """Whether the number stands within an occurrence of the words."""
    return any(match.start() <= number.start < match.end() for match in re.finditer(re.escape(words), text))


def sentences(markdown: str) -> list[str]:
    """The sentences of a Markdown cell, tables and lists taken line by line."""
    text = re.sub(r"^\|.*$|^#+ .*$", " ", plain(re.sub(r"`[^`]*`", "code", markdown)), flags=re.M)
    blocks = re.split(r"\n\s*\n|\n\s*[-*>] |\n\s*\d+\. ", text)
    return [s for block in blocks for s in re.split(r"(?<=[.!?:;])[\"”»)*_]*\s+", " ".join(block.split())) if s]


# What is linted


def lint_prose(notebook: NotebookNode) -> Iterator[str]:
    """Flagged words, long sentences, letters that nobody defined."""
    [legend] = [cell.source for cell in notebook.cells if cell.id == "legend"] or [""]
    defined = set(re.findall(r"\*\*(\w+)\*\*", legend))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from (f"{cell.id}: {finding}" for finding in flagged(plain(cell.source)))
            yield from (f"{cell.id}: {finding}" for finding in too_long(cell.source))
        used = {letter for group in re.findall(r"\((?:[A-Z]\w*|\d+)(?:, (?:[A-Z]\w*|\d+))+\)", cell.source)
                for letter in re.findall(r"[A-Z]\w*", group) if letter in LEGEND}
        if used - defined:
            yield f"{cell.id}: the legend does not define {', '.join(sorted(used - defined))}"


def flagged(text: str) -> Iterator[str]:
    """The words of `FLAGGED` in a text, each with its surroundings."""
    for pattern in FLAGGED:
        for match in re.finditer(pattern, text, re.I):
            around = " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())
            yield f"{match[0]!r} in …{around}…"


def too_long(text: str) -> Iterator[str]:
    """The sentences of a text that have more than `LONGEST` words."""
    for sentence in sentences(text):
        if (words := len(re.findall(r"\w[\w'’.,-]*", sentence))) > LONGEST:
            yield f"a sentence of {words} words: {sentence[:60]}…"


def lint_module(path: Path) -> Iterator[str]:
    """Flagged words in a module's strings and comments; long sentences in the hints and messages of checks."""
    source = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and id(node) not in inside:
            text = said(node)
            findings = [*flagged(text), *(too_long(text) if path.parent.name == "checks" else ())]
            yield from (f"line {node.lineno}: {finding}" for finding in findings)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from (f"line {token.start[0]}: {finding}" for finding in flagged(token.string))


def lint_form(notebook: NotebookNode) -> Iterator[str]:
    """The parts that every notebook has, in the form that every notebook gives them."""
    first, text = notebook.cells[0].source, "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    if not re.search(r"!\[[^\]]+\]\(images/\d\d_strip\.svg\)", first):
        yield "the first cell does not show the strip"
    if len(set(re.findall(r"\]\((images/\w+\.svg)\)", text))) < 3:
        yield "fewer than two drawings besides the strip"
    for words, least in (("> **Takeaway.**", 3), ("> **Predict.**", 3), ("### Pencil ", 2), ("### Open question", 1)):
        if text.count(words) < least:
            yield f"{text.count(words)} times {words!r}, must be at least {least}"
    opening = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if (lines := len(opening.source.split("\n")) - opening.source.split("\n").count("")) > OPENING:
        yield f"{opening.id}: the opening cell has {lines} lines, at most {OPENING}"
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.count("> **Predict.**") > cell.source.count("<summary>Answer"):
            yield f"{cell.id}: a Predict prompt without <details><summary>Answer</summary>"
        if cell.cell_type == "markdown" and re.search(UNFOLDS, cell.source, re.S):
            yield f"{cell.id}: nbconvert unfolds an answer that begins after a blank line or holds a fence"


def core_minutes(notebook: NotebookNode) -> float:
    """An estimate for the sections that are not marked *further*: reading, and exercises that are not a stretch.

    The speeds are those that readers of the first eight notebooks reported. Pencil problems count nowhere.
    """
    minutes = 0.0
    for part in sections(notebook):
        if " · further" in part[0].source.split("\n")[0]:
            continue
        for cell in part:
            if cell.cell_type == "markdown":
                text = re.sub(r"^### (Pencil|Open question).*?(?=^#|\Z)", "", cell.source, flags=re.S | re.M)
                minutes += len(plain(text).split()) / WORDS
                minutes += sum(int(match[4]) for match in HEADING.finditer(text) if match[5] != "stretch")
            elif "hide-cell" not in cell.metadata.get("tags", []):
                printed = "\n".join(output.get("text", "") for output in cell.outputs)
                minutes += len([line for line in f"{cell.source}\n{printed}".split("\n") if line.strip()]) / LINES
    return minutes


def lint_minutes(notebook: NotebookNode) -> Iterator[str]:
    """The minutes of the core path that the first cell announces: at most an hour, and not fewer than it takes."""
    announced = re.search(r"core path takes about (\d+)\s+minutes", notebook.cells[0].source)
    minutes = core_minutes(notebook)
    if announced is None:
        yield "the first cell does not say 'The core path takes about … minutes'"
    elif not minutes - 3 <= int(announced[1]) <= CORE:
        yield f"the core path is said to take {announced[1]} minutes; it takes about {minutes:.0f}, at most {CORE}"


def lint_exercises(notebook: NotebookNode) -> Iterator[str]:
    """A card with the one heading, the stub, and the cell with hint and solution."""
    cells = notebook.cells
    for i, cell in enumerate(cells):
        if cell.cell_type == "markdown" and re.search(r"^(\*\*|#+ )Exercise", cell.source, re.M):
            if not HEADING.search(cell.source):
                yield f"{cell.id}: the heading of an exercise is '### Exercise n.m · kind · minutes · level'"
        if cell.cell_type == "code" and cell.source.startswith("@exercise("):
            exercise_id = re.match(r'@exercise\("([\d.]+)"\)', cell.source)[1]
            number = ".".join(str(int(part)) for part in exercise_id.split("."))
            if f"### Exercise {number} · " not in cells[i - 1].source:
                yield f"{cell.id}: no card '### Exercise {number} · …' stands before the stub"
            if cells[i + 1].source != STUCK.format(exercise_id).replace("'", '"'):
                yield f"{cell.id}: after the stub comes {STUCK.format(exercise_id)!r}"


def lint_code(notebook: NotebookNode) -> Iterator[str]:
    """Lines that print cuts, essays in strings, conclusions that are printed, checks that nobody folded."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for line in cell.source.splitlines():
            if len(line) > COLUMNS:
                yield f"{cell.id}: {len(line)} columns, at most {COLUMNS}: {line[:50]}…"
        if "NBVAL_IGNORE_OUTPUT" in cell.source:
            yield f"{cell.id}: a tag, nbval-ignore-output, takes the place of the comment"
        folded = {key: True for key in HIDDEN if cell.metadata.get("jupyter", {}).get(key)} == HIDDEN
        folded = folded and "hide-cell" in cell.metadata.get("tags", [])
        if re.search(r"^\s*claim\(", cell.source, re.M) and not folded:
            yield f"{cell.id}: a claim stands in a cell that is not folded"
        yield from lint_strings(cell)


def lint_visible(notebook: NotebookNode) -> Iterator[str]:
    """Names that a visible cell needs, and that only a folded cell defines: a reader would look for them in vain."""
    visible, folded = set(dir(builtins)), {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        defined, needed = names_of(cell.source)
        if "hide-cell" in cell.metadata.get("tags", []):
            folded |= {name: cell.id for name in defined}
        else:
            for name in sorted((needed - visible - defined) & folded.keys()):
                yield f"{cell.id}: {name!r} comes from the folded cell {folded[name]}"
            visible |= defined


def names_of(source: str) -> tuple[set[str], set[str]]:
    """Names that a cell defines, its functions' own included, and names that it reads.

    >>> [sorted(names) for names in names_of("from a.b import c as d\\nx = d(y)")]
    [['d', 'x'], ['d', 'y']]
    """
    nodes = list(ast.walk(ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M))))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    defined |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined |= {(alias.asname or alias.name).split(".")[0] for node in nodes
                if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    return defined, {node.id for node in names if isinstance(node.ctx, ast.Load)}


def lint_strings(cell: NotebookNode) -> Iterator[str]:
    """Long strings in a code cell; docstrings are not counted."""
    tree = ast.parse(re.sub(r"^[%!].*$", "", cell.source, flags=re.M))
    documents = {id(node.body[0].value) for node in ast.walk(tree)
                 if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and isinstance(node.body[0], ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    printed = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Call)
               and getattr(node.func, "id", "") == "print" for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in documents or id(node) in inside or not isinstance(node, (ast.JoinedStr, ast.Constant)):
            continue
        text = said(node)
        most = PRINTED if id(node) in printed and "claim(" not in cell.source else SAID_IN_CODE
        if (words := len(re.findall(r"[A-Za-z]{2,}", text))) > most:
            yield f"{cell.id}: a string of {words} words in code, at most {most}: {text[:50]!r}…"


def said(node: ast.expr) -> str:
    """The words of a string or an f-string."""
    if isinstance(node, ast.JoinedStr):
        return " ".join(said(part) for part in node.values if isinstance(part, ast.Constant))
    return node.value if isinstance(node.value, str) else ""


def lint(path: Path) -> list[str]:
    """All findings about a notebook's prose and form, or about what a module says."""
    if path.suffix == ".py":
        return list(lint_module(path))
    notebook = read_as_is(path)
    return [*lint_form(notebook), *lint_minutes(notebook), *lint_exercises(notebook), *lint_code(notebook),
            *lint_visible(notebook), *lint_prose(notebook), *lint_numbers(notebook, *facts(path.name[:2]))]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 if nothing was found."""
    found = 0
    for path in map(Path, sys.argv[1:] if argv is None else argv):
        findings = lint(path)
        found += len(findings)
        print(f"{path}: {len(findings)} findings", *findings, sep="\n  ")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
