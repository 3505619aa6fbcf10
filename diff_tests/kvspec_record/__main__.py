"""`python FOLDER/kvspec_record`: the worker, with nothing but this package added to what the engine can import."""

import os
import sys

if not __package__:
    # Python put this folder first in the path, where `sglang.py` would hide the engine. The package's parent is shown
    # just long enough to import the package; its modules are then found through it.
    sys.path[0] = os.path.dirname(sys.path[0])
    import kvspec_record  # noqa: F401

    del sys.path[0]

from kvspec_record.worker import main

sys.exit(main())
