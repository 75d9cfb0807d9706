# SPDX-License-Identifier: Apache-2.0
"""UMBP's names: those of :mod:`penstock.umbp`."""
from penstock.umbp import *  # noqa: F403
from penstock.umbp import __all__ as __all__
