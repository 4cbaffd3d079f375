"""Grading: answers of students in a sandbox, judged by checks in a process where nothing of theirs runs."""
