# SPDX-License-Identifier: Apache-2.0
"""What ci/tensorstore keeps: libraries that any later checkout can go on with."""
from __future__ import annotations

from driver import DRIVER, setting


def test_libraries_outlive_the_checkout_that_made_them() -> None:
    """Whoever wants more of them (--arrays) configures again from where they were configured from."""
    libraries = setting(DRIVER, "LIBRARIES")
    assert libraries in setting(libraries / "build", "CMAKE_HOME_DIRECTORY").parents
    assert "/integrations/tensorstore/" not in (libraries / "build" / "build.ninja").read_text()
