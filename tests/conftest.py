"""No network and an empty HOME for every test, every notebook kernel and every other subprocess."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent / "no_network"))
import no_network

# These are loaded, and hold no tests; two files of one name cannot be searched for doctests.
collect_ignore_glob = ["*conftest.py", "no_network/sitecustomize.py"]

HOME = Path(tempfile.mkdtemp(prefix="course-home-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(no_network.environment(HOME))

import course_lib  # noqa: E402, F401  sets how OpenMP's threads wait, here and for every kernel

# The same examples on every run, and no time limit for one of them on a busy machine.
hypothesis.settings.register_profile("course", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("course")


def pytest_collection_modifyitems(items):
    """Build matplotlib's font cache before a kernel would, and announce it on stderr, in this new HOME."""
    if any(item.path.suffix == ".ipynb" for item in items):
        import matplotlib.font_manager  # noqa: F401
