"""Notebooks to be graded, and the grader run on them as a teacher runs it."""

import csv
import json
import os
import subprocess
import sys

IMPORTS = "import torch\nfrom course_lib.classroom import exercise"
HEAD = '@exercise("03.2")\ndef causal_mask(T, S):\n'
RIGHT = HEAD + "    return torch.ones(T, S, dtype=torch.bool).tril(S - T)\n"
WRONG = "return torch.ones(T, S, dtype=torch.bool).tril()"


def notebook(*cells):
    """The bytes of a notebook with these code cells."""
    content = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
               for cell in cells]
    return json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def answered(body, *before):
    """A notebook with an answer to 03.2 of this body, and cells before it."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return notebook(IMPORTS, *before, HEAD + lines)


def run_grader(folder, *options, env=None):
    """The finished process of `class grade`; its results lie beside the folder."""
    command = [sys.executable, "-m", "course_lib", "class", "grade", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **(env or {})})


def rows_of(folder):
    """The rows of `answers.csv` beside a folder of submissions, by student and exercise."""
    path = folder.with_name(f"{folder.name}-grades") / "answers.csv"
    with open(path, encoding="utf-8", newline="") as file:
        return {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}
