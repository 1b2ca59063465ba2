"""Models and tokenizers: looked at, loaded, saved."""
