"""python -m rltok_core"""

import sys

from rltok_core.cli import main

sys.exit(main())
