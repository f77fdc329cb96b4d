"""``python -m fpsim`` is the command ``fpsim``."""

from __future__ import annotations

import sys

from fpsim.cli import main

sys.exit(main())
