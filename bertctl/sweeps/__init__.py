"""Many runs as one.

A grid with seeds, its cells run side by side, what they came to, and which setting is chosen.
"""
