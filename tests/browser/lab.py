"""JupyterLab on a free loopback port, and one notebook of it open in headless Chromium."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Playwright, Request

from course_lib.classroom.teaching.handout import find_browser

TOKEN = "course"

# No question about news, no panel of extensions, no windowing (it takes cells out of the page), no saving.
PAGE_CONFIG = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True,
                                      "@jupyterlab/extensionmanager-extension": True}}
SETTINGS = {"notebook-extension/tracker": {"windowingMode": "none"},
            "docmanager-extension/plugin": {"autosave": False}}

# Messages on the console that JupyterLab causes by itself, each with the reason why it may stay.
HARMLESS: dict[str, str] = {}

# The page can look idle before the session is connected; a run that starts then asks for a kernel, and waits.
READY = """() => {
    const panel = window.jupyterapp?.shell.currentWidget, session = panel?.sessionContext;
    return panel?.context?.isReady && session?.isReady && session.session?.kernel?.status === 'idle';
}"""
RUN = """([command]) => {
    window.ran = null;
    window.jupyterapp.commands.execute(command)
        .then(ok => { window.ran = {ok}; }, error => { window.ran = {error: String(error)}; });
}"""
BEHIND_WIDGET = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    const isWidget = ({model}) => model.type === 'code' && /widget\\(/.test(model.sharedModel.source);
    const last = notebook.widgets.findLastIndex(isWidget);
    notebook.activeCellIndex = last + 1;
    return last;
}"""
RAISED = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .flatMap(cell => cell.model.outputs?.toJSON() ?? [])
    .filter(output => output.output_type === 'error').map(error => `${error.ename}: ${error.evalue}`)"""


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium that fetches nothing of its own accord."""
    quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]
    return playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", *quiet])


def write_json(path: Path, content: dict) -> None:
    """A JSON file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def jupyterlab(root: Path, state: Path, *, theme: str = "JupyterLab Light") -> Iterator[str]:
    """Serve the notebooks under `root` until the block ends; yields the address.

    Args:
        state: an empty folder for settings, runtime files and the log `lab.log`.

    Raises:
        RuntimeError: the server ended or did not answer within three minutes; the message holds its log.
    """
    write_json(state / "config" / "labconfig" / "page_config.json", PAGE_CONFIG)
    for name, content in {**SETTINGS, "apputils-extension/themes": {"theme": theme}}.items():
        write_json(state / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings", content)
    url = f"http://127.0.0.1:{free_port()}"
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(state / "config"), "JUPYTER_DATA_DIR": str(state / "data"),
                                "JUPYTER_RUNTIME_DIR": str(state / "runtime"), "IPYTHONDIR": str(state / "ipython"),
                                "JUPYTER_PLATFORM_DIRS": "1"}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
               f"--ServerApp.port={url.rpartition(':')[2]}", "--ServerApp.port_retries=0",
               f"--ServerApp.root_dir={root}", f"--IdentityProvider.token={TOKEN}",
               "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
               f"--LabApp.user_settings_dir={state / 'settings'}", f"--LabApp.workspaces_dir={state / 'workspaces'}"]
    with open(state / "lab.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until_up(url, server, state / "lab.log")
        yield url
    finally:
        server.terminate()
        server.wait(20)


def wait_until_up(url: str, server: subprocess.Popen, log: Path) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + 180
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/api/status?token={TOKEN}", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


@dataclass
class Notebook:
    """A notebook in the browser.

    Attributes:
        errors: of the page and its console.
        strangers: addresses outside this machine that the page asked for.
    """

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(error.stack or str(error)))
        self.page.on("console", self.hear)
        self.page.on("request", self.watch)

    def hear(self, message: ConsoleMessage) -> None:
        """Remember an error on the console."""
        if message.type == "error" and not any(text in message.text for text in HARMLESS):
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def watch(self, request: Request) -> None:
        """Remember a request to another machine."""
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.strangers.append(request.url)

    def open(self, name: str) -> None:
        """Open the notebook and wait for its kernel."""
        self.page.goto(f"{self.url}/lab/tree/{name}?token={TOKEN}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        self.page.wait_for_function(READY, timeout=60_000)

    def run_all(self, timeout_s: float = 180) -> None:
        """Run every cell; fail if one raises."""
        self.run("notebook:run-all-cells", timeout_s)

    def run_to_widget(self, timeout_s: float = 180) -> None:
        """Run the cells down to the widget, and no further; fail if one raises."""
        assert self.page.evaluate(BEHIND_WIDGET) > 0, "no cell makes a widget"
        self.run("notebook:run-all-above", timeout_s)

    def run(self, command: str, timeout_s: float) -> None:
        """Run cells as a command of JupyterLab does; fail if one raises."""
        self.page.evaluate(RUN, [command])  # which only starts it, for `evaluate` knows no time limit
        self.page.wait_for_function("() => window.ran || document.querySelector('.jp-Dialog')",
                                    timeout=1000 * timeout_s)
        dialogs = self.page.locator(".jp-Dialog").all_text_contents()
        assert dialogs == [], f"JupyterLab asks: {dialogs}"
        raised, ended = self.page.evaluate(RAISED), self.page.evaluate("window.ran")
        assert raised == [] and ended == {"ok": True}, f"cells raised {raised}, the run ended with {ended}"
        waiting = [text for text in self.page.locator(".jp-InputPrompt").all_text_contents() if "*" in text]
        assert waiting == [], "cells are still running"

    def locate(self, selector: str) -> Locator:
        """The first match, scrolled into view."""
        found = self.page.locator(selector).first
        found.wait_for(state="visible", timeout=60_000)
        found.scroll_into_view_if_needed()
        return found

    def until(self, condition: str, *args: object, timeout_s: float = 60) -> None:
        """Wait until the JavaScript function `condition`, called with `args` as one array, is true."""
        self.page.wait_for_function(condition, arg=list(args), timeout=1000 * timeout_s)

    def change_theme(self, theme: str) -> None:
        """To "Dark" or "Light". Wait until JupyterLab's splash is gone: a second change within 200 ms of it raises."""
        self.page.evaluate("([name]) => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})",
                           [f"JupyterLab {theme}"])
        self.until("([light]) => document.body.dataset.jpThemeLight === light"
                   " && !document.querySelector('#jupyterlab-splash')", str(theme == "Light").lower())
