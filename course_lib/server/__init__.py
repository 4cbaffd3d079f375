"""An OpenAI-compatible server: `python -m course_lib serve`, or `serve_in_background(load())` in a notebook."""

from course_lib.server.app import create_app
from course_lib.server.background import RunningServer, serve_in_background
from course_lib.server.command import serve
from course_lib.server.limits import Limits

__all__ = ["Limits", "RunningServer", "create_app", "serve", "serve_in_background"]
