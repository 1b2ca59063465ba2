"""What keeps the memory of a long pass from growing with the number of different batches."""

from bertctl.session import current

_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_KERNELS = "64"


def bound_caches() -> None:
    """Lets oneDNN, and torch's layer over it, keep 64 kernels each instead of 1,024.

    A kernel is compiled for each shape of a product and takes about 0.1 MB; batches of like lengths
    have hundreds of shapes, so the caches grow by 2.5 MB in a thousand rows until they hold 300 MB.
    Both variables are read when torch is loaded, so this is called before. If the user has set one
    of them, it stays.
    """
    for name in _VARIABLES:
        current().default_variable(name, _KERNELS)
