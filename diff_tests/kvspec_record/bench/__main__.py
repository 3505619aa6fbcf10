"""`python FOLDER/kvspec_record/bench`: the benchmark's worker; the engine's own libraries stay first."""

import os
import sys

if not __package__:
    # As in `kvspec_record.__main__`: the parent is shown just long enough to import the package.
    sys.path[0] = os.path.dirname(os.path.dirname(sys.path[0]))
    import kvspec_record.bench  # noqa: F401

    del sys.path[0]

from kvspec_record.bench.worker import main

sys.exit(main())
