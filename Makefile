# make help lists what can be done here.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
PYTEST := $(PY) -m pytest
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=300 --nbval-sanitize-with=tests/nbval_sanitize.cfg
NOTEBOOKS ?= $(sort $(wildcard notebooks/*.ipynb))

# JupyterLab refuses to run as root unless told; it asks no server for news or updates.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
QUIET := --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None

.DEFAULT_GOAL := help
.PHONY: help install lab test test-notebooks test-browser bench train notebooks lint

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | \
		while IFS='|' read -r target text; do printf '%-20s %s\n' "$$target" "$$text"; done

lab: $(INSTALLED)  ## open the notebooks in JupyterLab (ARGS=--no-browser and the like are passed on)
	$(PY) -m jupyterlab $(ROOT) $(QUIET) $(ARGS) notebooks

test: $(INSTALLED)  ## ruff, unit tests, doctests and every notebook
	$(PY) -m ruff check .
	$(PYTEST) -m "not browser" $(NBVAL) $(ARGS) tests course_lib notebooks

test-notebooks: $(INSTALLED)  ## the notebooks alone
	$(PYTEST) $(NBVAL) $(ARGS) tests/test_notebooks.py notebooks

test-browser: $(INSTALLED)  ## the notebooks in a real JupyterLab and Chromium
	$(PYTEST) $(ARGS) tests/browser

bench: $(INSTALLED)  ## measure this machine
	$(PY) -m course_lib bench $(ARGS)

train: $(INSTALLED)  ## rebuild the shipped weights from the corpus generator
	$(PY) -m course_lib train $(ARGS)
	$(PY) -m course_lib evaluate --card

notebooks: $(INSTALLED)  ## execute the notebooks afresh and write them back without noise
	$(PY) tests/tools/notebooks.py $(ARGS) $(NOTEBOOKS)

install: $(INSTALLED)  ## only make the environment

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -c constraints.txt -e '.[test]'
	touch $@
