"""`python -m simulated`, with tests/support on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulated.simulate import main

sys.exit(main(sys.argv[1:]))
