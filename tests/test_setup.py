"""The installation: one list of dependencies, one direction of imports, no network, a complete wheel."""

import ast
import configparser
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import notebooks as tool
from course_lib import __main__, __version__
from course_lib.classroom import doctor
from course_lib.quantize import stored_bytes

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PINS = {line.split("==")[0].lower().replace("_", "-"): line.split("==")[1]
        for line in (ROOT / "constraints.txt").read_text().split("\n") if line and line[0] != "#"}


# --- one list of dependencies -------------------------------------------------------------------


def requirements():
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return [Requirement(line) for line in lines]


def test_constraints_pin_every_dependency_inside_its_range():
    for requirement in requirements():
        pin = PINS[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


def test_constraints_are_flat():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    assert lines == [line for line in lines if re.fullmatch(r"[\w.-]+==[\w.!]+", line)], \
        "only name==version: no +cpu, no hash, no path, no marker"
    assert len(PINS) == len(lines) > 50
    assert not [name for name in PINS if name.startswith(("nvidia", "cuda"))]


def test_any_build_of_pytorch_meets_its_constraint():
    pin = SpecifierSet(f"=={PINS['torch']}")
    assert all(pin.contains(PINS["torch"] + build) for build in ("", "+cpu", "+cu130"))


@pytest.fixture
def make(tmp_path):
    """Run make on a machine of Linux without NVIDIA, whose Python only writes down what it is asked to do."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("touch", "id", "sort", "test", "mkdir", "echo"):
        (tools / name).symlink_to(shutil.which(name))
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)

    def run(*arguments, system="Linux", nvidia=False, torch=False):
        scripts = {tools / "uname": f"echo {system}", tools / "nvidia-smi": "true",
                   python: f'[ "$1" = -c ] && exit {0 if torch else 1}; echo "python $*"'}
        for path, script in scripts.items():
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        if not nvidia:
            (tools / "nvidia-smi").unlink()
        (tmp_path / "venv" / ".installed").unlink(missing_ok=True)
        done = subprocess.run([shutil.which("make"), "-s", "-C", ROOT, f"VENV={tmp_path / 'venv'}", *arguments],
                              env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return run


INSTALL = "python -m pip install -c constraints.txt -e .[test]"
FROM_CPU_INDEX = ("python -m pip install -c constraints.txt --no-deps "
                  "--index-url https://download.pytorch.org/whl/cpu torch")


@pytest.mark.parametrize("target", ["install", "lab", "test"])
def test_make_takes_pytorch_without_cuda_when_told(make, target):
    status, lines = make(target, "TORCH=cpu")
    assert status == 0 and lines[:2] == [FROM_CPU_INDEX, INSTALL]
    status, plain = make(target, nvidia=True)
    assert status == 0 and plain == lines[1:]


def test_make_says_before_the_download_what_is_coming(make):
    _, lines = make("install")
    assert lines[1:] == [INSTALL] and "TORCH=cpu" in lines[0] and "gigabytes of CUDA" in lines[0]
    for machine in ({"nvidia": True}, {"system": "Darwin"}, {"torch": True}):
        assert make("install", **machine) == (0, [INSTALL])


def test_make_knows_one_word_for_torch(make):
    status, lines = make("install", "TORCH=gpu")
    assert status == 2 and "TORCH=gpu is not allowed: must be cpu, or left out" in lines[0]


@pytest.mark.parametrize("target", ["install", "lab", "test"])
def test_make_takes_everything_from_a_wheelhouse(make, target, tmp_path):
    """No index is asked, not even PyTorch's own, and no download is announced."""
    folder = tmp_path / "two words"
    offline = f"{INSTALL} --no-index -f {folder}"
    assert make(target, f"WHEELHOUSE={folder}")[1][0] == f"WHEELHOUSE={folder} is not allowed: there is no such folder"
    folder.mkdir()
    for words in ([], ["TORCH=cpu"]):
        status, lines = make(target, f"WHEELHOUSE={folder}", *words)
        assert status == 0 and lines[0] == offline and not [line for line in lines if "index-url" in line]


def test_triton_is_installed_for_its_tests_alone(make, tmp_path):
    """It is large: a folder of its own, which no other target looks into."""
    kernels = tmp_path / "venv" / "kernels"
    status, lines = make("test-kernels", nvidia=True)
    bring = f"python -m pip install -c constraints.txt --target {kernels} --upgrade triton"
    assert status == 0 and lines == [INSTALL, bring, "python -m pytest tests/kernels"]
    (kernels / ".installed").unlink()
    assert make("test-kernels", nvidia=True, torch=True) == (0, [INSTALL, lines[-1]]), "CUDA has brought it"
    for target in ("install", "lab", "test"):
        assert not [line for line in make(target, nvidia=True)[1] if "pip" in line and "triton" in line]
    status, lines = make("test", nvidia=True)
    assert " --ignore tests/kernels " in lines[-2] and "make test-kernels" in lines[-1], "left out, and says so"


def test_what_make_test_leaves_out_it_names_and_ci_runs(make):
    _, lines = make("test", nvidia=True)
    left_out = re.findall(r"make test-(\w+)", lines[-1])
    assert left_out == ["whole", "browser", "kernels"]
    assert {*re.findall(r" --ignore tests/(\w+)", lines[-2]), "browser"} == {*left_out}
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert {*commands} == {"make test", *(f"make test-{name}" for name in left_out)}


def test_environment_yml_says_what_pyproject_says():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    python, pip_itself = conda
    lowest = min(SpecifierSet(PROJECT["requires-python"]), key=lambda bound: Version(bound.version))
    assert lowest.operator == ">=" and python == f"python={lowest.version}" and pip_itself == "pip"
    assert pip == {"pip": ["-c constraints.txt", "-e .[test]"]}
    assert list(PROJECT["optional-dependencies"]) == ["test", "kernels"]
    assert "install -c constraints.txt -e '.[test]'" in (ROOT / "Makefile").read_text()


def test_continuous_integration_runs_the_oldest_and_the_newest_python():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert versions == [f"3.{minor}" for minor in range(30) if allowed.contains(f"3.{minor}")]
    assert [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_this_python_is_allowed():
    assert SpecifierSet(PROJECT["requires-python"]).contains(".".join(map(str, sys.version_info[:3])))
    assert Version(metadata.version(PROJECT["name"])) == Version(__version__)


def imported_names(path):
    """Top-level packages that a file imports at run time."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


OPTIONAL = {"triton", "transformers", "huggingface_hub", "ctranslate2"}  # used only where they are present


def test_the_library_imports_only_what_it_declares():
    declared = {Requirement(line).name.replace("pillow", "pil").replace("-", "_") for line in PROJECT["dependencies"]}
    allowed = declared | {"course_lib", *OPTIONAL, *sys.stdlib_module_names}
    for path in ROOT.glob("course_lib/**/*.py"):
        assert {name if name in allowed else name.lower() for name in imported_names(path)} <= allowed, path


# --- rooms: imports only go down ------------------------------------------------------------------

# Each room may import from itself and from those that stand in its row; the pipeline is the top of the package.
ROOMS = {
    "pipeline": set(),
    "training": {"pipeline"},
    "analysis": {"training", "pipeline"},
    "display": {"analysis", "training", "pipeline"},
    "classroom": {"analysis", "training", "pipeline"},
    "front": {"pipeline"},  # __init__ and __main__: what the reader imports, and the commands
}
# The pipeline in levels: a module imports from its own level or from one above it in this table.
LEVELS = {
    0: "config device threads command_line",
    1: "added_tokens tokenizer template_limits chat_template detokenize layers kv_cache sampling flash costs "
       "flash_triton published rounding gptq quantized_linear quantized_cache paging paged_cache patterns automaton "
       "byte_regex plain_schema json_schema structural_tag tool_calls tool_messages token_mask grammar calculator "
       "tools",
    2: "model",
    3: "hf_config hf_pattern merge_list hf_tokenizer weights quantized_files few_rows joined fast_layer compiled "
       "quantize checkpoint generate",
    4: "speculative drafts scheduler engine batch chat_models agent server",
}
LEVEL = {name: level for level, names in LEVELS.items() for name in names.split()}
PACKAGES = {"server"}  # stages of the pipeline that are a folder of modules


class RunTimeImports(ast.NodeVisitor):
    """Modules of course_lib that a file imports, outside `if TYPE_CHECKING:`."""

    def __init__(self):
        self.found = set()

    def visit_If(self, node):
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Import(self, node):
        self.found |= {module(alias.name) for alias in node.names if alias.name.split(".")[0] == "course_lib"}

    def visit_ImportFrom(self, node):
        assert not node.level, "absolute imports only: they show the package"
        if node.module.split(".")[0] == "course_lib":
            self.found |= {module(f"{node.module}.{alias.name}") for alias in node.names}


def module(dotted):
    """The module that holds `dotted`: a.b.c as far as there is such a file; a package counts as one module."""
    path, names = ROOT / "course_lib", []
    for name in dotted.split(".")[1:]:
        if (path / f"{name}.py").exists():
            return ".".join([*names, name])
        if not (path / name).is_dir():
            break
        path, names = path / name, [*names, name]
    return ".".join(names) or "__init__"


def room_of(name):
    """The room of a module as `import_graph` names it."""
    first, _, rest = name.partition(".")
    if first in PACKAGES:
        return "pipeline"
    return first if rest or first in ROOMS else "front" if first.startswith("__") else "pipeline"


def stage_of(name):
    """The name under which a module of the pipeline stands in LEVELS: its own, or that of its package."""
    first = name.partition(".")[0]
    return first if first in PACKAGES else name


def import_graph():
    graph = {}
    for path in sorted((ROOT / "course_lib").rglob("*.py")):
        name = module(".".join(["course_lib", *path.relative_to(ROOT / "course_lib").with_suffix("").parts]))
        visitor = RunTimeImports()
        visitor.visit(ast.parse(path.read_text()))
        graph.setdefault(name.removesuffix(".__init__"), set()).update(
            found.removesuffix(".__init__") for found in visitor.found)
    return {name: found - {name} for name, found in graph.items()}


def test_imports_stay_in_their_room_or_go_down():
    wrong = [(name, other) for name, others in import_graph().items() for other in others
             if room_of(other) not in {room_of(name), *ROOMS[room_of(name)]}]
    assert wrong == []


def test_every_module_of_the_pipeline_has_a_level():
    assert {stage_of(name) for name in import_graph() if room_of(name) == "pipeline"} <= set(LEVEL)


def test_imports_of_the_pipeline_go_down_or_stay_on_their_level():
    wrong = [(name, other) for name, others in import_graph().items() for other in others
             if stage_of(name) in LEVEL and stage_of(other) in LEVEL
             and LEVEL[stage_of(other)] > LEVEL[stage_of(name)]]
    assert wrong == []


def test_there_is_no_circle_of_imports():
    graph = import_graph()
    while leaves := [name for name, others in graph.items() if not others & set(graph)]:
        for name in leaves:
            del graph[name]
    assert graph == {}, "these import one another"


def test_what_is_an_argument_is_not_imported():
    graph = import_graph()
    assert "kv_cache" not in graph["model"]
    assert not {"model", "tokenizer"} & graph["generate"]


def test_the_room_test_sees_the_files_it_speaks_of():
    graph = import_graph()
    assert {room_of(name) for name in graph} == set(ROOMS)
    assert {"training.corpus", "training.corpus.grammar", "classroom.checks.nb03"} <= set(graph)
    assert "sampling" in graph["generate"] and "analysis.trace" in graph["analysis.heads"]
    assert {"server.errors", "engine"} <= graph["server.app"] and room_of("server.app") == "pipeline"


# --- display: a view and a widget for each subject ------------------------------------------------

LONGEST = 320  # lines of a module


def test_every_widget_has_a_view_of_its_name_and_every_view_a_widget():
    names = {path.stem for path in (ROOT / "course_lib/display").glob("*.py")}
    widgets = {name.removesuffix("_widget") for name in names if name.endswith("_widget")}
    views = {name.removesuffix("_view") for name in names if name.endswith("_view")}
    assert widgets == views and {"tokenizer", "sampling", "sampling_lab"} <= views


def test_no_module_of_the_display_room_is_long():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "course_lib/display").glob("*.py")}
    assert lengths and {name: n for name, n in lengths.items() if n > LONGEST} == {}


# --- no network ---------------------------------------------------------------------------------

NOWHERE = "192.0.2.1"  # reserved for documentation (RFC 5737): nobody answers


@pytest.mark.parametrize("reach_out", [
    lambda: socket.create_connection((NOWHERE, 80), timeout=1),
    lambda: socket.socket().connect((NOWHERE, 80)),
    lambda: socket.socket().connect_ex((NOWHERE, 80)),
    lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (NOWHERE, 53)),
    lambda: socket.getaddrinfo("example.com", 443),
    lambda: socket.gethostbyname("example.com"),
    lambda: urllib.request.urlopen("https://example.com", timeout=1),
], ids=["create_connection", "connect", "connect_ex", "sendto", "getaddrinfo", "gethostbyname", "urlopen"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_network_is_out_of_reach(reach_out):
    with pytest.raises(RuntimeError, match="there is no network in tests"):
        reach_out()


def test_subprocesses_have_no_network_either():
    code = f"import socket; socket.create_connection(({NOWHERE!r}, 80), timeout=1)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "NetworkBlockedError" in run.stderr


def test_this_machine_is_within_reach(tmp_path):
    for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(tmp_path / "s"))):
        with socket.socket(family) as server, socket.socket(family) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())
    assert socket.getaddrinfo("localhost", 80)


def test_home_is_empty_and_downloads_are_off():
    home = Path(os.environ["HOME"])
    assert Path.home() == home and "course-home-" in home.name
    assert not [*home.glob(".bash*"), *home.glob(".cache/huggingface"), *home.glob(".cache/pip")]
    assert list(Path(os.environ["TIKTOKEN_CACHE_DIR"]).iterdir()) == []
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert Path(os.environ["COURSE_PROGRESS"]).parent == home


# --- files --------------------------------------------------------------------------------------


def project_files():
    """What git keeps: everything but the names in .gitignore."""
    patterns = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split("\n") if line)]

    def kept(names):
        return [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)]

    for folder, folders, files in os.walk(ROOT):
        folders[:] = kept(folders)
        yield from (Path(folder, name) for name in kept(files))


FORBIDDEN = ["/" + "work/", "/" + "root/", "/" + "opt/", "../" + "shared", "/tmp/" + "w/", "find" + "-links",
             "extra-" + "index-url",
             "pypi" + ".org", "files.python" + "hosted", "git" + "ea"]


def test_no_file_names_a_machine_or_a_registry():
    hits = []
    for path in project_files():
        if path.suffix not in {".safetensors", ".png"}:
            text = path.read_text()
            hits += [f"{path.relative_to(ROOT)}: {word}" for word in FORBIDDEN if word in text]
    assert hits == []


def test_documented_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"lab", "test", "test-browser", "bench", "train", "notebooks", "help"} <= targets
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        commands = re.findall(r"(?:`|^ *\$? *)make ([a-z-]+)", text, re.M)
        assert commands and set(commands) <= targets, name
        for folder in re.findall(r"`((?:notebooks|tests|course_lib)/[\w./-]*)`", text):
            assert (ROOT / folder).exists(), f"{name} speaks of {folder}"


def test_readme_names_every_module_of_the_pipeline():
    table = (ROOT / "README.md").read_text().split("| module | what it answers |")[1].split("\n\n")[0]
    modules = {path.stem for path in (ROOT / "course_lib").glob("*.py")} - {"__init__", "__main__"}
    assert set(re.findall(r"`(\w+)`", table)) & modules == modules


def test_what_readme_says_in_python_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    names: dict = {}
    for block in blocks:
        exec(block.replace("load(compile=True)", "load()"), names)  # compiling takes a minute
    assert len(blocks) == 2 and "gravity" in capsys.readouterr().out
    ratio = stored_bytes(names["lm"].model) / stored_bytes(names["small"].model)
    assert round(ratio, 1) == 5.9 and names["draft"].num_speculative_tokens == 4


def test_sanitizing_leaves_words_and_plain_numbers_alone():
    config = configparser.ConfigParser()
    config.read(ROOT / "tests/nbval_sanitize.cfg")
    rules = [(config[name]["regex"], config[name]["replace"]) for name in config.sections()]

    def sanitized(text):
        for regex, replacement in rules:
            text = re.sub(regex, replacement, text)
        return text

    for plain in ("4096 tokens", "ratio 2.0", "7 matches", "3 stories", "loss 1.25", "5 spaces"):
        assert sanitized(plain) == plain
    assert sanitized("took  12.3 ms, 9 s") == sanitized("took 112 ms, 10.0 s")
    assert sanitized("  1,204 tokens/s") == sanitized("98.2 tokens/s")
    assert sanitized("<f at 0x7f12a9c0>") == sanitized("<f at 0x55aa00ff11>")


# --- the wheel ----------------------------------------------------------------------------------

IN_A_WHEEL = ("import sys, tiktoken, course_lib; from course_lib.training.corpus import documents; "
              "assert course_lib.__file__.startswith(sys.argv[1]), course_lib.__file__; next(documents(0)); "
              "encoding = tiktoken.get_encoding('pocket'); print(encoding.n_vocab, encoding.encode('Hi'))")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built offline from a copy of what git keeps."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in project_files():
        if path.parts[len(ROOT.parts)] in {"course_lib", "tiktoken_ext"} or path.parent == ROOT:
            copy = folder / "source" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    pip(folder, "wheel", "--no-build-isolation", "--wheel-dir", "dist", "./source")
    [path] = (folder / "dist").glob("*.whl")
    return path


def pip(folder, *arguments):
    command = [sys.executable, "-m", "pip", arguments[0], "--no-deps", "--no-index", "--quiet",
               "--disable-pip-version-check", *arguments[1:]]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    kept = {path.relative_to(ROOT).as_posix() for path in project_files()
            if path.relative_to(ROOT).parts[0] in {"course_lib", "tiktoken_ext"}}
    assert kept <= packed, kept - packed
    for name in ("course_lib/models/pocket/model.safetensors", "course_lib/models/pocket/tokenizer.json",
                 "course_lib/models/pocket-draft/model.safetensors", "course_lib/training/corpus/data/capitals.toml",
                 "tiktoken_ext/pocket.py"):
        assert name in packed
    assert "tiktoken_ext/__init__.py" not in packed
    assert not [name for name in packed if name.startswith(("tests", "notebooks"))]


def test_the_wheel_works_without_the_repository(wheel, tmp_path):
    pip(tmp_path, "install", "--target", "site", str(wheel))
    site = str(tmp_path / "site")
    run = subprocess.run([sys.executable, "-c", IN_A_WHEEL, site], cwd=tmp_path, capture_output=True,
                         text=True, timeout=120, env=os.environ | {"PYTHONPATH": site})
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("4096 ")


def test_a_notebook_runs_on_the_wheel(wheel, tmp_path, monkeypatch):
    pip(tmp_path, "install", "--target", "site", str(wheel))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    notebook = nbformat.read(next(ROOT.glob("notebooks/00_*.ipynb")), as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import course_lib; print(course_lib.__file__)"))
    nbformat.write(notebook, tmp_path / "notebook.ipynb")
    last = tool.execute(tmp_path / "notebook.ipynb").cells[-1]
    assert last.outputs[0].text.startswith(str(tmp_path / "site"))


# --- the command line and the doctor ------------------------------------------------------------


@pytest.mark.parametrize("command", __main__.COMMANDS)
def test_every_command_shows_its_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main([command, "--help"])
    assert stop.value.code == 0 and command in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main(["fly"])
    assert stop.value.code == 2 and "doctor" in capsys.readouterr().err


def test_the_doctor_finds_this_installation_sound(capsys):
    assert __main__.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "everything works"
    assert [line.split(":")[0].removeprefix("ok").strip() for line in lines[:-1]] == [
        "packages", "device", "threads", "weights of pocket", "weights of pocket-draft", "tiktoken", "generation"]
    for word in (f"course-lib {__version__}", "torch 2.", " cores", "4,096 tokens", "tokens/s"):
        assert word in "\n".join(lines)


def checkpoint(folder):
    """A folder that the doctor finds sound, with weights that are no weights."""
    folder.mkdir(parents=True)
    lines = []
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text(name)
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def test_the_doctor_compares_checksums(tmp_path):
    folder = checkpoint(tmp_path / "pocket")
    assert doctor.check_weights(folder) == ("weights of pocket", "2 files as shipped", "")
    (folder / "model.safetensors").write_text("model.safetensorz")
    assert doctor.check_weights(folder).found == "model.safetensors has changed"
    (folder / "config.json").unlink()
    changed = doctor.check_weights(folder)
    assert changed.found == "config.json is missing, model.safetensors has changed"
    assert "git checkout" in changed.advice and "train" in changed.advice
    (folder / "SHA256SUMS").write_text((folder / "SHA256SUMS").read_text().splitlines()[0] + "\n")
    assert "does not list" in doctor.check_weights(folder).found
    assert "SHA256SUMS is missing" in doctor.check_weights(tmp_path / "nothing").found


def test_the_doctor_says_what_to_do_and_fails(tmp_path, monkeypatch, capsys):
    checkpoint(tmp_path / "pocket")
    monkeypatch.setattr(doctor, "checks", lambda: iter([doctor.check_weights(tmp_path / "pocket"),
                                                        doctor.check_weights(tmp_path / "pocket-draft")]))
    assert doctor.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok") and lines[1].startswith("BROKEN weights of pocket-draft")
    assert lines[2].strip().startswith("what to do: run: git checkout") and lines[3] == "1 broken"


def test_the_doctor_names_a_missing_package(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["no-such-package>=1", "torch>=2"])
    check = doctor.check_packages()
    assert "no-such-package is not installed" in check.found and "pip install" in check.advice


def test_the_doctor_names_a_package_that_is_too_old(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch>=99", "numpy>=1", "pytest>=99; extra == 'test'"])
    check = doctor.check_packages()
    assert check.found == f"torch {metadata.version('torch')}, needed >=99" and "pip install" in check.advice


def test_the_doctor_looks_for_the_chosen_model(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_MODEL", raising=False)
    assert doctor.check_chosen_model() is None
    monkeypatch.setenv("COURSE_MODEL", str(tmp_path / "nowhere"))
    check = doctor.check_chosen_model()
    assert "nowhere" in check.found and "unset it" in check.advice
    monkeypatch.setenv("COURSE_MODEL", str(tmp_path))
    assert "config.json is missing" in doctor.check_chosen_model().found
    (tmp_path / "config.json").write_text("{}")
    assert doctor.check_chosen_model() == ("COURSE_MODEL", str(tmp_path), "")


def test_the_doctor_knows_a_wrong_device(monkeypatch):
    monkeypatch.setenv("COURSE_DEVICE", "toaster")
    check = doctor.check_device()
    assert "toaster" in check.found and "COURSE_DEVICE" in check.advice
