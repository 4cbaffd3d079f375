# make help lists what can be done here.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
TORCH ?=
WHEELHOUSE ?=

ifneq ($(TORCH),)
ifneq ($(TORCH),cpu)
$(error TORCH=$(TORCH) is not allowed: must be cpu, or left out)
endif
endif

# Threads that wait for each other spin only for a while: see course_lib/threads.py.
ifndef OMP_WAIT_POLICY
GOMP_SPINCOUNT ?= 3000
export GOMP_SPINCOUNT
endif

PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
KERNELS := $(VENV)/kernels
SITE := $(VENV)/site
PYTEST := $(PY) -m pytest
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=300 --nbval-sanitize-with=tests/nbval_sanitize.cfg
WORKERS ?= 2
NOTEBOOKS ?= $(sort $(wildcard notebooks/*.ipynb))

# JupyterLab refuses to run as root unless told; it asks no server for news or updates.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
QUIET := --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None

.DEFAULT_GOAL := help
.PHONY: help install lab test test-notebooks test-whole test-browser test-kernels bench train notebooks claims pages drawings site reset lint

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | \
		while IFS='|' read -r target text; do printf '%-20s %s\n' "$$target" "$$text"; done

lab: $(INSTALLED)  ## open the notebooks in JupyterLab (ARGS=--no-browser and the like are passed on)
	$(PY) -m jupyterlab $(ROOT) $(QUIET) $(ARGS) notebooks

test: $(INSTALLED)  ## ruff, unit tests, doctests and every notebook
	$(PY) -m ruff check .
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not browser" --ignore tests/kernels --ignore tests/whole $(NBVAL) $(ARGS) tests course_lib notebooks
	@echo 'Not in here: make test-whole (the notebooks once more), make test-browser (needs Chromium), make test-kernels (brings Triton).'

test-notebooks: $(INSTALLED)  ## the notebooks alone
	$(PYTEST) $(NBVAL) $(ARGS) tests/test_notebooks.py notebooks

test-whole: $(INSTALLED)  ## the notebooks once more: with every exercise answered, and with another model
	$(PYTEST) -n $(WORKERS) --dist worksteal $(ARGS) tests/whole

test-browser: $(INSTALLED) build/.site  ## the notebooks in a real JupyterLab and Chromium, and the site
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) tests/browser

test-kernels: $(KERNELS)/.installed  ## the Triton kernels, on a GPU or interpreted (brings Triton, 0.7 GB, on Linux)
	PYTHONPATH=$(KERNELS) $(PYTEST) $(ARGS) tests/kernels

bench: $(INSTALLED)  ## measure this machine
	$(PY) -m course_lib bench $(ARGS)

train: $(INSTALLED)  ## rebuild the shipped weights from the corpus generator
	$(PY) -m course_lib train $(ARGS)
	$(PY) -m course_lib evaluate --card

notebooks: $(INSTALLED)  ## execute the notebooks afresh and write them back without noise
	$(PY) tests/tools/notebooks.py $(ARGS) $(NOTEBOOKS)
	$(PY) tests/tools/claims.py

claims: $(INSTALLED)  ## read the numbers of the course's claims out of the notebooks again
	$(PY) tests/tools/claims.py $(ARGS)

drawings: $(INSTALLED)  ## draw the pictures of the notebooks afresh, the same bytes each time
	$(PY) tests/tools/drawings.py

pages: $(INSTALLED)  ## the notebooks as HTML files in pages/, to read or print (ARGS=--dark)
	$(PY) tests/tools/pages.py --out pages $(ARGS) $(NOTEBOOKS)

site: build/.site  ## notebooks, glossary, library and more as a web site in build/site; open its index.html

reset: $(INSTALLED)  ## put a notebook back as it was, and keep yours beside it (NB=03)
	$(PY) -m course_lib class reset $(NB)

install: $(INSTALLED)  ## only make the environment; the first time, TORCH=cpu takes PyTorch without CUDA (on Linux), WHEELHOUSE=DIR needs no network

# Of PyTorch's own index only PyTorch is taken; what it needs comes with the rest. Its version there,
# such as 2.13.0+cpu, is one that the constraint 2.13.0 admits, so the second command leaves it alone.
CPU_INDEX := https://download.pytorch.org/whl/cpu
CPU_TORCH := $(PY) -m pip install -c constraints.txt --no-deps --index-url $(CPU_INDEX) torch

HAS_TORCH = $(PY) -c 'import sys; from importlib.util import find_spec; sys.exit(find_spec("torch") is None)'
WARNING := No NVIDIA driver found, but PyTorch for Linux brings several gigabytes of CUDA libraries. \
To do without them, press Ctrl+C and run the same command with TORCH=cpu at its end.
WARN = if [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null && ! $(HAS_TORCH); then echo '$(WARNING)'; fi

# A folder that `python -m course_lib class wheelhouse` has filled holds every package, PyTorch for the CPU among them.
IS_THERE = test -d '$(WHEELHOUSE)' || { echo 'WHEELHOUSE=$(WHEELHOUSE) is not allowed: there is no such folder'; exit 1; }

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(if $(WHEELHOUSE),@$(IS_THERE),$(if $(TORCH),$(CPU_TORCH),@$(WARN)))
	$(PY) -m pip install -c constraints.txt -e '.[test]' $(if $(WHEELHOUSE),--no-index -f '$(WHEELHOUSE)')
	touch $@

# Triton lies in a folder of its own, where only test-kernels looks, so that everything else stays as it was.
# PyTorch with CUDA has brought it already.
HAS_TRITON = $(PY) -c 'import sys; from importlib.util import find_spec; sys.exit(find_spec("triton") is None)'

$(KERNELS)/.installed: $(INSTALLED)
	mkdir -p $(KERNELS)
	$(HAS_TRITON) || $(PY) -m pip install -c constraints.txt --target $(KERNELS) --upgrade triton
	touch $@

# The site is built by jupyter-book, whose packages contradict constraints.txt, in an environment of its own. What it
# reads is staged by the environment of the course. A build that fails leaves the last site as it was.
$(SITE)/.installed: book/requirements.txt | $(INSTALLED)
	test -x $(SITE)/bin/python || $(PY) -m venv $(SITE)
	$(SITE)/bin/python -m pip install -r book/requirements.txt
	touch $@

SITE_BIN = $(abspath $(SITE)/bin)
LIBRARY := $(wildcard $(addprefix course_lib/,*.py */*.py */*/*.py classroom/*.toml classroom/*.json classroom/*/*.toml))
SITE_READS := $(wildcard notebooks/*.ipynb notebooks/images/* teaching/*.md teaching/*/*.md book/* book/*/* *.md) \
	course_lib/models/pocket/README.md $(LIBRARY)

build/.site: $(SITE)/.installed $(SITE_READS)
	$(PY) -m book.tools.stage build/book
	cd build/book && $(SITE_BIN)/jupyter-book config sphinx . >/dev/null
	rm -rf build/site.new
	cd build/book && PYTHONPATH=extension $(SITE_BIN)/sphinx-build -q -j 3 -E -W --keep-going -b html \
		-d ../book-doctrees . ../site.new
	rm -rf build/site && mv build/site.new build/site
	touch $@
