"""What is public is documented, and what the pages link to exists."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# An answer has the docstring of its stub, which the notebook holds; a check says in `likely` what it is about.
SAID_ELSEWHERE = {"answers", "checks"}
MODULES = sorted((ROOT / "course_lib").rglob("*.py"))
# Pages in book/ link to others that the site makes: its own test follows them.
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("*/*/*.md"),
                                 *ROOT.glob("course_lib/models/*/*.md"), *ROOT.glob(".github/*.md")]
               if not {".venv", "build", "pages", "book"} & set(path.relative_to(ROOT).parts))


def public(tree):
    """(dotted name, node) of every module, class, function and method without a leading underscore."""
    todo = [("", tree)]
    while todo:
        prefix, node = todo.pop()
        yield prefix or "module", node
        for child in node.body if isinstance(node, (ast.Module, ast.ClassDef)) else []:
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and child.name[0] != "_" \
                    and not any(ast.unparse(one).endswith(".setter") for one in child.decorator_list):
                todo.append((f"{prefix}.{child.name}".lstrip("."), child))


def undocumented(tree):
    return [name for name, node in public(tree) if not (ast.get_docstring(node) or "").strip()]


def test_the_search_sees_what_has_no_docstring():
    tree = ast.parse("class A:\n    '''a'''\n    def b(self): ...\n    def _c(self): ...\nasync def d(): ...")
    assert undocumented(tree) == ["module", "d", "A.b"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_public_has_a_docstring(path):
    missing = undocumented(ast.parse(path.read_text("utf-8")))
    if path.parent.name in SAID_ELSEWHERE and path.stem.startswith("nb"):
        missing = [name for name in missing if name == "module"]
    assert missing == []


# Links


def slug(heading):
    """The anchor that GitHub and the site give a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda m: m[1] or "", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    headings = re.findall(r"^#{1,6} (.+)$", text, re.M)
    return {slug(heading) for heading in headings} | set(re.findall(r'id="([^"]+)"', text))


def dead_links(path, tracked):
    """Targets of a page that are no file of the repository, or no heading or cell of that file."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        cell = f'"id": "{anchor.removeprefix("cell-id=")}"'
        if not found.exists() or (found.is_file() and found not in tracked):
            yield target
        elif anchor.startswith("cell-id=") and cell not in found.read_text("utf-8"):
            yield target
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            yield target


@pytest.fixture(scope="module")
def tracked():
    """Files of the repository: what lies only on this machine is a dead link for everybody else."""
    listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    files = listing.stdout.splitlines() if listing.returncode == 0 else \
        [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]  # a copy without git
    return {(ROOT / name).resolve() for name in files}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(path, tracked):
    assert list(dead_links(path, tracked)) == []


def test_a_dead_link_is_seen(tmp_path):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A title, here\n")
    page.write_text("[1](other.md) [2](other.md#a-title-here) [3](#none) [4](other.md#b) [5](gone.md) `[6](no.md)` "
                    "[7](https://example.org) [8](hidden.md)\n")
    (tmp_path / "hidden.md").touch()
    assert list(dead_links(page, {page, other})) == ["#none", "other.md#b", "gone.md", "hidden.md"]
