"""Right and wrong answers to every exercise through the grader's judge: prints what came of each as JSON.

A process of its own, since a process in which a gradient was computed cannot start others that compute one. Arguments:
how many right and how many wrong answers to take of each exercise; without them, all.
"""

import importlib
import inspect
import json
import re
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from grading import notebook
from mutants import marked

from course_lib.classroom.checks import notebooks
from course_lib.classroom.teaching.grading.children import in_child
from course_lib.classroom.teaching.grading.command import warm_up
from course_lib.classroom.teaching.grading.judge import judge_program
from course_lib.classroom.teaching.grading.program import Step, program_for, read_notebook
from course_lib.classroom.teaching.grading.sandbox import LAYERS, Limits, Sandbox

MARKS = ("def mutant(exercise_id, words):\n    return lambda function: function\n"
         "def variant(exercise_id):\n    return mutant(0, 0)")


def programs_of(module):
    """Each marked answer of a module, and what has to run for it: the module is taken for a notebook."""
    source = re.sub(r"^from mutants import .*$", MARKS, inspect.getsource(module), flags=re.M)
    book = read_notebook(notebook(source))
    steps = {step.name: i for i, step in enumerate(book.steps) if step.name}
    for function in marked(module):
        at = steps[function.__name__]
        old = book.steps[at]
        book.steps[at] = Step(**{**vars(old), "exercise": function.exercise_id})
        yield function, program_for(book, book.steps[at], [])
        book.steps[at] = old


def main(most):
    warm_up()
    sandbox, taken, told = Sandbox(Limits(seconds=120), LAYERS), Counter(), []
    for name in notebooks():
        for function, program in programs_of(importlib.import_module(f"mutants.nb{name}")):
            sort = function.exercise_id, bool(function.words)
            taken[sort] += 1
            if taken[sort] <= most[sort[1]]:
                verdict = in_child(lambda program=program: asdict(judge_program(program, sandbox)), 180)
                told.append([function.exercise_id, function.__name__, function.words, verdict])
    print(json.dumps(told))


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10**6, 10**6])
