# SPDX-License-Identifier: Apache-2.0
# The short names for what developers and CI do. Meson does the building; ci/preset names the kinds of build.
#   make demo | demo-pool | demo-data | test | test-full | test-tensorstore | tensorstore-wheel | test-python | test-engines | test-ucx [ONLY=matrix,kills,suites] [VERSIONS=1.13,...] | test-rdma [ONLY=case,...] | coverage | bench [ONLY=figure] | soak [ONLY=run] [FOR_S=seconds] | install | format | lint | clean
BUILD = build
SOURCES = find src include python tests bench soak integrations \( -name '*.[ch]' -o -name '*.cc' -o -name '*.hpp' \) -print0
LINT = find src python -name '*.c' -print0 | xargs -0 -r -n 1 -P 2 clang-tidy --quiet -p $(BUILD)
# Python itself is not instrumented: the sanitizer comes before it, and does not count what an interpreter leaves at its end.
PYTHON_ASAN = LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=abort_on_error=1:allocator_may_return_null=1:detect_leaks=0
MAKEFLAGS += --no-print-directory

all:
	@ci/preset release $(BUILD)
	@ninja -C $(BUILD)

demo: all
	@ci/demo $(BUILD)

demo-pool: all
	@ci/demo-pool $(BUILD)

demo-data: all
	@python=$$(ci/venv lean tests/python/requirements.txt) && "$$python" ci/demo-data $(BUILD)

test: all
	@pkg-config --exists cmocka || { echo "make test needs libcmocka-dev; ./test installs it" >&2; exit 1; }
	@if command -v clang >/dev/null; then ci/preset fuzz; ninja -C build-fuzz fuzzers; fi
	@if command -v cmake >/dev/null; then ci/tensorstore --quick; fi
	@python=$$(ci/venv lean tests/python/requirements.txt) || echo "make test: without packages from PyPI, less of tests/python is run" >&2; \
	ci/summary --again --e2e tests/e2e --e2e "tests/python$${python:+=$$python}" --fuzz build-fuzz --gtest build-tensorstore/driver-quick $(BUILD)

# `make test`, and all that needs another compiler or more patience: `ci/install build test full` brings the tools.
test-full: test check-format lint test-asan test-tensorstore-asan test-tsan test-valgrind test-fuzz

test-asan test-tsan:
	@ci/preset $(@:test-%=%)
	@ninja -C build-$(@:test-%=%)
	@ci/summary --word $(@:test-%=%) --e2e tests/e2e build-$(@:test-%=%)
	@if [ $@ = test-asan ]; then $(PYTHON_ASAN) ci/summary --word asan-python --no-meson --e2e tests/python build-asan; fi

test-valgrind:
	@ci/preset valgrind
	@ninja -C build-valgrind
	@ci/summary --word valgrind build-valgrind --setup valgrind

# The TensorStore driver alone, with arrays and beside TensorStore's wheel, and its door for longer than in `make test`.
test-tensorstore: all
	@ci/install tensorstore
	@ci/tensorstore --python
	@ci/summary --word tensorstore --no-meson --e2e tests/tensorstore --gtest build-tensorstore/driver $(BUILD)

# The Python package with all that it works with: torch, dask, pyarrow, scikit-learn and the peers of its figures, 2.9 GB from PyPI.
test-python: all
	@python=$$(ci/venv full tests/python/requirements-full.txt) && \
	ci/summary --word python --no-meson --e2e "tests/python=$$python" $(BUILD)

# LMCache, sglang, vLLM, Mooncake Store and, if PENSTOCK_NIXL names its source tree, NIXL on CPU, with penstock behind them.
test-engines: all
	@python=$$(ci/venv engines integrations/engines/requirements.txt) && \
	PENSTOCK_BUILD="$$PWD/$(BUILD)" $$python -m pytest -q -p no:cacheprovider tests/python/test_integration_*.py

# A wheel of TensorStore's Python module with the driver in it, for this machine's Python: prints its name.
tensorstore-wheel: all
	@ci/install tensorstore
	@ci/tensorstore --python

# The driver's tests under valgrind: over TCP, since UCX's hello does not wait for shared memory to be set up there, and
# not on nodes that are killed between the cases, which shows what the others show.
test-tensorstore-valgrind: all
	@ci/install tensorstore full
	@ci/tensorstore
	@UCX_TLS=tcp,self GTEST_FILTER='NodeOverTcp.*:OwnServer.*:RemoteDram*' ci/summary --word tensorstore-valgrind --no-meson \
	    --under "valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --suppressions=tests/valgrind/others.supp" \
	    --gtest build-tensorstore/driver $(BUILD)

# The driver and its tests with sanitizers, which takes TensorStore's libraries with them, too.
test-tensorstore-asan:
	@ci/install tensorstore
	@ci/preset asan
	@ninja -C build-asan
	@ci/tensorstore --asan
	@ci/summary --word tensorstore-asan --no-meson --gtest build-tensorstore/driver-asan build-asan

# Every version of UCX against every other, each on its libraries from PyPI: the first time fetches 250 MB.
test-ucx: all
	@PENSTOCK_BUILD="$$PWD/$(BUILD)" /usr/bin/python3 tests/ucx/matrix.py $(if $(ONLY),--only $(ONLY)) $(if $(VERSIONS),--versions $(VERSIONS))

# Remote DMA in an emulated machine with soft RoCE: the first time fetches a kernel of Debian's, 107 MB.
test-rdma: all
	@ci/install rdma
	@PENSTOCK_BUILD="$$PWD/$(BUILD)" /usr/bin/python3 tests/rdma/machine.py $(if $(ONLY),--only $(ONLY))

# Longer than within `make test`, where each fuzzer has ten seconds.
test-fuzz:
	@ci/preset fuzz
	@ninja -C build-fuzz fuzzers
	@PENSTOCK_FUZZ_S=$${PENSTOCK_FUZZ_S:-120} ci/summary --word fuzz --fuzz build-fuzz

# Line coverage of every room by the whole suite, real daemons and Python's clients included; fails below 90 %.
coverage:
	@ci/preset coverage
	@ninja -C build-coverage
	@find build-coverage -name '*.gcda' -delete
	@python=$$(ci/venv lean tests/python/requirements.txt) && \
	ci/summary --word coverage --e2e tests/e2e --e2e "tests/python=$$python" build-coverage
	@ci/coverage build-coverage

check-format:
	@$(SOURCES) | xargs -0 -r clang-format --dry-run -Werror --ferror-limit=10

format:
	@$(SOURCES) | xargs -0 -r clang-format -i

lint: all
	@if command -v clang-tidy >/dev/null; then $(LINT); else echo "lint: no clang-tidy here, skipped"; fi

# Each figure and each soak prints one JSON object as its last line; without ONLY, all of them run.
bench: all
	@PENSTOCK_BUILD="$$PWD/$(BUILD)" $(if $(PENSTOCK_TRACE),PENSTOCK_TRACE="$(PENSTOCK_TRACE)") bench/run $(if $(ONLY),--only $(ONLY))

soak: all
	@PENSTOCK_BUILD="$$PWD/$(BUILD)" soak/run $(if $(ONLY),--only $(ONLY)) $(if $(FOR_S),--for-s $(FOR_S))

install: all
	@meson install -C $(BUILD)

clean:
	@rm -rf build build-asan build-tsan build-fuzz build-valgrind build-coverage build-venv build-tensorstore build-ucx build-rdma

.PHONY: all demo demo-pool demo-data test test-full test-tensorstore test-tensorstore-asan test-tensorstore-valgrind tensorstore-wheel test-python test-ucx test-rdma test-engines test-asan test-tsan test-valgrind test-fuzz coverage check-format format lint bench soak install clean
