"""How the shipped weights came to be: the text, the training, what training taught, and its log."""
