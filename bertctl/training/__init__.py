"""The fine-tuning job and its loop."""
