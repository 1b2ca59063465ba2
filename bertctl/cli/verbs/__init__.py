"""One thin file per verb: its options, and the call of the function that does it."""
