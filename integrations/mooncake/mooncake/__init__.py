# SPDX-License-Identifier: Apache-2.0
"""Mooncake's names on penstock; :mod:`mooncake.store` has them."""
