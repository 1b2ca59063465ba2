"""Recipes as runs: what makes each kind of recipe ready, and the one way to run it."""
