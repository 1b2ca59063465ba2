"""The recipe: its schema, how it is read, how it is written."""
