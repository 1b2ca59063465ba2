"""Multiple choice: which of several texts goes on with a context."""
