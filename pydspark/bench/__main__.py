"""``python -m pydspark.bench``."""

from __future__ import annotations

import sys

from pydspark.bench.main import main

if __name__ == "__main__":
    sys.exit(main())
