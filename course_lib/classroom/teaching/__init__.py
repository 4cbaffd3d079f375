"""What a teacher needs around a lesson: editions, sheets, slides, an installation offline, grades."""
