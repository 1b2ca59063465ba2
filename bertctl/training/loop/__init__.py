"""The training loop: what one step, one evaluation and one epoch do."""
