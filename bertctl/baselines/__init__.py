"""Simple models beside a run: what a frozen encoder or word counts reach on the same rows."""
