"""``python -m pydspark.server`` is ``dspark-server``."""

from __future__ import annotations

import sys

from pydspark.server.main import main

if __name__ == "__main__":
    sys.exit(main())
