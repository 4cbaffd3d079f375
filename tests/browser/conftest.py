"""Options and fixtures of the browser tests. They are collected only when asked for:

    make test-browser                                       or: python -m pytest tests/browser
    make test-browser ARGS="--screenshots DIR"              write pictures of the widgets, too
    python -m pytest tests/browser --notebooks DIR          the notebooks of another folder
"""

import shutil
from pathlib import Path

import pytest
from lab import Notebook, jupyterlab, launch
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--screenshots", type=Path, metavar="DIR", help="write pictures of the widgets here")
    parser.addoption("--notebooks", type=Path, metavar="DIR", default=HERE.parents[1] / "notebooks",
                     help="take the notebooks from here")


def pytest_ignore_collect(config):
    """Leave this folder alone unless it, a file in it, or the marker was named."""
    named = any(HERE in (Path(arg.partition("::")[0]).resolve(), *Path(arg.partition("::")[0]).resolve().parents)
                for arg in config.args)
    return None if named or config.option.markexpr == "browser" else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


FAILED = pytest.StashKey[bool]()


def option(config, name, default):
    """The option's value, also where pytest read this file too late to know the option."""
    return getattr(config.option, name, None) or default


@pytest.fixture(scope="session")
def root(request, tmp_path_factory):
    """A copy of the notebooks: the browser never writes into the repository."""
    source = option(request.config, "notebooks", HERE.parents[1] / "notebooks")
    folder = tmp_path_factory.mktemp("notebooks")
    for path in source.glob("*.ipynb"):
        shutil.copy(path, folder)
    if (source / "images").is_dir():
        shutil.copytree(source / "images", folder / "images")
    return folder


@pytest.fixture(scope="session")
def server(root, tmp_path_factory):
    with jupyterlab(root, tmp_path_factory.mktemp("lab")) as url:
        yield url


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture
def notebook(browser, server, request, tmp_path):
    """A page for one notebook. After a failure a picture of it is in the test's temporary folder."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, device_scale_factor=2)
    notebook = Notebook(page, server)
    yield notebook
    if request.node.stash.get(FAILED, False):
        page.screenshot(path=tmp_path / "failure.png")
        print(f"\nThe page as it was: {tmp_path / 'failure.png'}\nErrors: {notebook.errors}")
    page.close()


@pytest.fixture
def opened(request, root, notebook):
    """The notebook that the test's file is named after, run down to its widget, in the light theme; afterwards its page
    has had no error and asked nobody but the server."""
    [path] = root.glob(f"{request.path.stem.removeprefix('test_nb')}_*.ipynb")
    notebook.open(path.name)
    notebook.change_theme("Light")  # JupyterLab keeps the theme that another test chose
    notebook.run_to_widget(timeout_s=600)
    yield notebook
    assert notebook.errors == []
    assert notebook.strangers == []


@pytest.fixture
def picture(request):
    """`picture(locator, name)` writes a screenshot if --screenshots asks for it."""
    folder = option(request.config, "screenshots", None)

    def take(locator, name):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            locator.screenshot(path=folder / f"{name}.png")

    return take
