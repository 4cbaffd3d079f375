"""What whoever teaches the course needs around a lesson: editions, sheets, slides, an installation offline, grades."""
