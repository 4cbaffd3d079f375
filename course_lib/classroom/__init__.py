"""What makes a notebook a lesson: exercises and their checks, claims, puzzles, the map of the course, the doctor."""
