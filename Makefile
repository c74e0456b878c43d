# proxnas: `make` lists the targets, `make search` and `make test` need nothing but make and Python.

PYTHON ?=#       the Python that makes .venv; if empty, the first usable one of PYTHONS
TORCH_INDEX ?=#  an index URL as given on pytorch.org (CPU, CUDA, ROCm); if empty, torch comes from pip's own index
JOBS ?= 2#       test processes
ARGS ?=#         more arguments for search, test, test-all or bench

# 3.11 first: the versions in constraints.txt were tested together with it. A candidate must run, not only
# exist: a version manager may have a python3.11 on the PATH that only says that it is not installed.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3 /usr/bin/python3

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
INDEX := $(VENV)/.torch-index

# By environment variable, so that the isolated build environment is pinned too (newer pips read the second one for it).
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_ROOT_USER_ACTION=ignore \
	$(RUN) -m pip -qq --disable-pip-version-check
# A process takes over tests of another that has more left. Bytecode is kept, even where the shell forbids it:
# the tests start about a hundred processes that would each compile the sources anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest -n $(JOBS) --dist worksteal -q

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# Sets $$python, or fails with one line that says what to install.
define FIND_PYTHON
python=; no_venv=; too_old=; \
for p in $(if $(PYTHON),'$(PYTHON)',$(PYTHONS)); do \
	if ! "$$p" -c '' 2>/dev/null; then continue; \
	elif ! "$$p" -c '$(NEW_ENOUGH)'; then too_old="$${too_old:-$$p is $$("$$p" -V 2>&1)}"; \
	elif ! "$$p" -c 'import ensurepip, venv' 2>/dev/null; then no_venv="$${no_venv:-$$p}"; \
	else python="$$p"; break; fi; \
done; \
if [ -z "$$python" ] && [ -n "$$no_venv" ]; then \
	package=$$("$$no_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	echo "proxnas: error: $$no_venv cannot make virtual environments: install its venv and ensurepip modules" \
		"(Debian, Ubuntu: apt install $$package)" >&2; exit 1; \
elif [ -z "$$python" ]; then \
	echo "proxnas: error: Python 3.11 or newer is needed, but $${too_old:-$(or $(PYTHON),python3) does not run}: install one" \
		"(Debian, Ubuntu: apt install python3 python3-venv) or name one (make install PYTHON=/path/to/python)" >&2; exit 1; \
fi
endef

.PHONY: help
help:  ## this list
	@echo 'usage: make TARGET [ARGS="..."] [PYTHON=...] [TORCH_INDEX=...] [JOBS=2]'; echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  %-10s %s\n' "$$name" "$$text"; done
	@echo; echo 'PYTHON       the Python (3.11 or newer) that makes .venv; else the first usable of python3.11, 3.12, ...'
	@echo 'TORCH_INDEX  another build of torch: an index URL as given on pytorch.org for CPU, CUDA or ROCm'
	@echo 'ARGS         more arguments: make search ARGS="--seed 1"; make test ARGS="-k prox"'

.PHONY: python
python:  # prints the Python that `install` would take; for scripts
	@$(FIND_PYTHON); echo "$$python"

.PHONY: install
install: $(STAMP)  ## makes .venv with the tested versions and installs proxnas into it, editable

# Install again after the folder was moved or copied (scripts in .venv hold its path) and for another TORCH_INDEX.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
ifneq ($(TORCH_INDEX),)
ifneq ($(shell cat $(INDEX) 2>/dev/null),$(TORCH_INDEX))
.PHONY: $(STAMP)
endif
endif

$(STAMP): pyproject.toml constraints.txt
	@$(RUN) -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null || { \
		$(FIND_PYTHON); echo "making $(VENV) with $$("$$python" -V)"; "$$python" -m venv --clear $(VENV); }
	@echo 'installing proxnas into $(VENV) (the first time takes some minutes)'
ifneq ($(TORCH_INDEX),)
# Without its dependencies, which such an index may hold in other versions; the next command brings them.
	@[ "$$(cat $(INDEX) 2>/dev/null)" = '$(TORCH_INDEX)' ] || \
		$(PIP) install --no-deps --force-reinstall --index-url '$(TORCH_INDEX)' torch
	@echo '$(TORCH_INDEX)' >$(INDEX)
endif
	@$(PIP) install $(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') --editable '.[dev,onnx,tensorboard]'
# By itself: there is no Ray for every platform, and only --ray and its tests need one.
	@$(PIP) install --only-binary ray ray || echo 'installed without ray: its tests will be skipped'
	@echo '$(CURDIR)' >$@

.PHONY: search
search: install  ## installs, then searches, trains, tests and exports on the embedded digits (goes on where it was stopped)
	@$(VENV)/bin/proxnas fit digits --resume $(ARGS)

.PHONY: test
test: install  ## installs, then runs the tests that are not marked slow
	@$(PYTEST) -m 'not slow' $(ARGS)

.PHONY: test-all
test-all: install  ## every test, with newly drawn examples
	@PROXNAS_EXAMPLES=drawn $(PYTEST) $(ARGS)

.PHONY: check
check: install  ## ruff, format, types, tests: what a change must pass
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --quiet --check . || { echo 'run: make format' >&2; exit 1; }
	@$(RUN) -m mypy
	@$(PYTEST) -m 'not slow' $(ARGS)

.PHONY: format
format: install  ## lets ruff repair what it can and format the rest
	@$(RUN) -m ruff check --quiet --fix-only .
	@$(RUN) -m ruff format .

.PHONY: bench
bench: install  ## all timings of docs/performance.md: tables on the screen, JSON and figures in bench/
	@$(RUN) benchmarks/speed.py bench $(ARGS)

.PHONY: docs
docs: install  ## the pages in docs/ as a site, in site/index.html
	@$(RUN) -c 'import mkdocs, material' 2>/dev/null || $(PIP) install --editable '.[docs]'
# Not --quiet, which would keep the warnings from --strict too.
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

.PHONY: faults
faults: install  ## kills, full disks, malformed files, load: what docs/reliability.md promises, in great number (25 minutes)
	@$(PYTEST) tests/cli/test_faults.py tests/common
	@PYTHONPATH=tests $(RUN) -m faults $(ARGS)

# A venv of its own with the lowest versions that pyproject.toml allows, on the oldest Python: the bounds are promises.
.PHONY: lower
lower:  ## the tests with the lowest versions of all dependencies, in .venv-lower
	@$(FIND_PYTHON); [ -x .venv-lower/bin/python ] || "$$python" -m venv .venv-lower
	@.venv-lower/bin/python tests/support/lower_bounds.py >.venv-lower/lower.txt
	@.venv-lower/bin/python -m pip -qq install $(if $(TORCH_INDEX),--extra-index-url '$(TORCH_INDEX)') \
		-r .venv-lower/lower.txt pytest pytest-xdist hypothesis
	@.venv-lower/bin/python -m pip -qq install --no-deps --editable .
	@.venv-lower/bin/python -m pytest -n $(JOBS) --dist worksteal -q -m 'not slow' $(ARGS)

.PHONY: clean
clean:  ## removes .venv, builds and caches; keeps runs/ and bench/
	@rm -rf $(VENV) .venv-lower build dist site src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
