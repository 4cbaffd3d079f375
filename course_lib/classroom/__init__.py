"""What makes a notebook a lesson: exercises and their checks, claims, puzzles, the map of the course, the doctor."""

from course_lib.classroom.claims import claim, whose_numbers
from course_lib.classroom.exercises import exercise, hint, solution
from course_lib.classroom.kept_answers import keep_answers
from course_lib.classroom.progress_report import progress
from course_lib.classroom.quiz_questions import quiz

__all__ = ["claim", "exercise", "hint", "keep_answers", "progress", "quiz", "solution", "whose_numbers"]
