"""What ci/tensorstore keeps: libraries that any later checkout can go on with."""
from __future__ import annotations

import pathlib
import re

DRIVER = pathlib.Path(__file__).resolve().parents[2] / "build-tensorstore" / "driver"


def setting(build: pathlib.Path, name: str) -> pathlib.Path:
    """A folder that a build folder of cmake's was configured with."""
    return pathlib.Path(re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1])


def test_libraries_outlive_the_checkout_that_made_them() -> None:
    """Whoever wants more of them (--arrays) configures again from where they were configured from."""
    libraries = setting(DRIVER, "LIBRARIES")
    assert libraries in setting(libraries / "build", "CMAKE_HOME_DIRECTORY").parents
    assert "/integrations/tensorstore/" not in (libraries / "build" / "build.ninja").read_text()
