# SPDX-License-Identifier: Apache-2.0
"""UMBP's part of ROCm's mori, on penstock. mori's other modules are not there."""
