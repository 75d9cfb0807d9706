# SPDX-License-Identifier: Apache-2.0
"""penstock as a cache of KV pages for inference engines: a module for each engine, which imports the engine's package."""
