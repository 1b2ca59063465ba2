"""What is wrong with a data set, found before a model is trained on it."""
