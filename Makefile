# Two commands do everything: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
# Set-up is done again when the lock file's content changes, not when its time does.
STAMP := $(VENV)/lock-$(shell sha256sum requirements.lock | cut -c1-16)

.PHONY: run test lint setup
.DEFAULT_GOAL := run

run: $(STAMP)
	$(VENV)/bin/python -m snakemake --cores 1

test: $(STAMP)
	$(VENV)/bin/python -m pytest

lint: $(STAMP)
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/snakefmt --check workflow
	$(VENV)/bin/python -m snakemake --lint

setup: $(STAMP)

$(STAMP): | requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	rm -f $(VENV)/lock-*
	touch $@
