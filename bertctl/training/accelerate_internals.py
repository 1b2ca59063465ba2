"""What is used of accelerate that its documentation doesn't promise, all in one place.

Each use has a test in `tests/contract/test_private_parts.py`, which fails when a release takes it
away.
"""


def forget_accelerator() -> None:
    """Lets the next `Accelerator` of this process take its own settings.

    The library keeps the settings of the first one, and refuses another precision.
    """
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
