"""What verbs are given as input: texts, rows of files, vectors."""
