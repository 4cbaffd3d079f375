"""The drawings of the course: mechanisms drawn from data, in one house style (`drawing`)."""
