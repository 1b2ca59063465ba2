"""What is learned: one file for each task type."""
