"""Every exercise judged from another process: right answers pass, and wrong ones are refused in their check's words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.classroom.checks import exercises_of, notebooks
from course_lib.classroom.teaching.grading.layers import attack
from course_lib.classroom.teaching.grading.sandbox import LAYERS

EXERCISES = [exercise.id for notebook in notebooks() for exercise in exercises_of(notebook)]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the judge says of one right and one wrong answer to each exercise."""
    if attack(LAYERS, tmp_path_factory.mktemp("folder")) is None:
        pytest.skip("this machine does not have all layers of protection")
    command = [sys.executable, str(Path(__file__).with_name("judged_answers.py")), "1", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_a_right_answer_passes_and_a_wrong_one_is_told_why(exercise_id, told):
    mine = [(words, verdict) for one, _, words, verdict in told if one == exercise_id]
    assert sorted(bool(words) for words, _ in mine) == [False, True]
    for words, verdict in mine:
        if words:
            assert verdict["status"] in ("not right", "error")
            assert words in "\n".join(verdict["lines"])
        else:
            assert verdict["status"] == "right", verdict
        assert verdict["problems"] == []


def test_only_side_effects_rest_on_the_word_of_the_students_process(told):
    reported = {exercise_id for exercise_id, _, _, verdict in told if verdict["reported"]}
    assert reported == {"07.6", "08.2", "10.2"}
