"""Imported by a `bertctl` process of the tests.

No file may have more than SMALL_DISK bytes, as on a full disk.
"""

import os
import resource

resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["SMALL_DISK"]), resource.RLIM_INFINITY))
