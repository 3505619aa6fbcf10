"""`python -m kvspec_cli` is `kvspec`."""

import sys

from kvspec_cli.main import main

sys.exit(main())
