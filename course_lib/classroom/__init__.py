"""What makes a notebook a lesson: exercises and their checks, claims, puzzles, the map of the course, the doctor."""

from course_lib.classroom.claims import claim, whose_numbers
from course_lib.classroom.exercises import exercise, hint, progress, solution
from course_lib.classroom.kept_answers import keep_answers

__all__ = ["claim", "exercise", "hint", "keep_answers", "progress", "solution", "whose_numbers"]
