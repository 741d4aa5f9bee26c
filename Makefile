# Everything a machine with Python 3.11, make and a C++ compiler needs; see `make help`.
VENV   := .venv
RUN    := $(VENV)/bin/python
FORKS  := .venv-forks

# PYTHON=... or python3; python3.11 where python3 is another version and python3.11 is installed.
version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ifndef PYTHON
PYTHON := $(if $(filter 3.11,$(call version,python3)),python3,$(if $(call version,python3.11),python3.11,python3))
endif

# Checked before anything is installed. torchvision, which mmdet and mmpretrain import, has no wheel for Python 3.12.
ON_3_11 := test forks slow coverage mutation lint format bench lock docs-pages docs-images
ON_ANY  := demo docs docs-linkcheck dist
ENVIRONMENT := $(wildcard $(if $(filter forks,$(MAKECMDGOALS)),$(FORKS),$(VENV))/bin/python)
FOUND   := $(call version,$(or $(ENVIRONMENT),$(PYTHON)))
needs    = $(error make $(1) needs Python $(2), but $(or $(ENVIRONMENT),$(PYTHON)) is $(or $(FOUND),not there): \
install Python 3.11 and run $(if $(ENVIRONMENT),make clean and )make $(1) PYTHON=/path/to/python3.11)
$(if $(filter 3.11,$(FOUND)),,$(foreach goal,$(filter $(ON_3_11),$(MAKECMDGOALS)),$(call needs,$(goal),3.11)))
$(if $(filter 3.11 3.12 3.13,$(FOUND)),,$(foreach goal,$(filter $(ON_ANY),$(MAKECMDGOALS)),$(call needs,$(goal),3.11 to 3.13)))

PIP    := $(RUN) -m pip --disable-pip-version-check --quiet
LOCKED := $(PIP) install --constraint requirements/lock.txt
DEMO   := demo mmengine report runtime

locked       = $(shell sed -n 's/^$(1)==//p' requirements/lock.txt)
TORCH       := $(call locked,torch)
MMCV        := $(call locked,mmcv)
TORCHVISION := $(call locked,torchvision)
MMPOSE      := $(call locked,mmpose)
XTCOCOTOOLS := $(call locked,xtcocotools)
# mmcv's wheel fits one torch and one Python only, so its place is named after both and shared by all clones.
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mm_metrics_plugin
WHEELS := $(CACHE)/mmcv-$(MMCV)-torch-$(TORCH)-cp$(subst .,,$(FOUND))
JOBS   := $(shell nproc 2>/dev/null || echo 2)

# Tests on all cores; those of one file stay together, as they share their fixtures.
SIDE_BY_SIDE := --numprocesses $(JOBS) --dist loadfile

# The maintained forks keep the import names, so they live in an environment of their own.
FORK_MMCV  := $(shell sed -n 's/^onedl-mmcv==//p' requirements/forks.txt)
FORK_PIP   := $(FORKS)/bin/python -m pip --disable-pip-version-check --quiet
FORK_RUNTIME = $(shell sed 's/.*/"&"/' requirements/runtime.txt requirements/report.txt)
FORK_WHEELS = $(subst mmcv-$(MMCV),onedl-mmcv-$(FORK_MMCV),$(WHEELS))

.PHONY: help demo test slow forks docs docs-linkcheck docs-pages docs-images coverage mutation lint format bench dist lock clean
help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.demo ## train a small classifier on real digits and read its AUC in the log (about 2 minutes)
	@$(RUN) tools/demo.py

test: $(VENV)/.tests $(VENV)/.docs browser ## install the OpenMMLab stack (compiles mmcv once) and run the whole suite
	$(RUN) -m pytest $(SIDE_BY_SIDE)

slow: $(VENV)/.tests ## run the long tests: memory, damaged files, killed processes, 10,000 examples per property (1 hour)
	$(RUN) -m pytest -m slow
	$(RUN) -m pytest tests/properties --hypothesis-profile slow $(SIDE_BY_SIDE)

forks: $(FORKS)/.stack ## run the integration tests on the maintained forks of OpenMMLab (compiles their mmcv once)
	$(FORKS)/bin/python -m pytest tests/integration

.PHONY: browser
browser: # for the tests of the HTML pages; without one they are skipped, or fail where CI=true
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	    command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then echo "Installing chromium ..."; \
	    apt-get -qq update && apt-get -qq -y install chromium >/dev/null && exit 0; fi; \
	echo "*** NO BROWSER: the tests of the HTML pages cannot run. Install chromium (needs root) for them. ***" >&2

docs: $(VENV)/.docs ## build the documentation into build/site, in English and Chinese, warnings as errors
	$(RUN) -m docs.build build/site

docs-linkcheck: $(VENV)/.docs ## check the links of the documentation to other sites
	$(RUN) -m docs.build --linkcheck build/linkcheck

docs-pages: $(VENV)/.tests ## write the parts of pages that repeat docstrings, help texts and messages
	$(RUN) -m docs.generate

docs-images: $(VENV)/.tests browser ## make the screenshots of the HTML report again
	$(RUN) docs/make_screenshot.py

NOT_COUNTED := $(foreach name,properties integration browser faults,--ignore tests/$(name))
coverage: $(VENV)/.tests $(VENV)/.docs ## measure what the quicker half of the suite reaches, child processes included
	rm -f .coverage .coverage.*
	$(RUN) -m coverage run -m pytest $(NOT_COUNTED) $(SIDE_BY_SIDE)
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

mutation: $(VENV)/.mutation ## change the kernels of AUC and matching one operator at a time, and count what the tests notice
	MM_METRICS_SEEDS=40 $(RUN) -m mutmut run --max-children $(JOBS)
	$(RUN) -m mutmut export-cicd-stats
	@cat mutants/mutmut-cicd-stats.json

# The checks of .pre-commit-config.yaml, on all files; a test compares the two.
FILES  = $(wildcard $(shell git ls-files --cached --others --exclude-standard))
TEXT   = $(shell git grep --untracked -Il "")
CODE   = $(filter-out %.md %.json,$(TEXT))
lint: $(VENV)/.dev ## check all files: ruff, mypy, codespell, large files, white space
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	@$(RUN) -m codespell_lib $(TEXT)
	@$(RUN) -m pre_commit_hooks.check_added_large_files --enforce-all --maxkb=2000 $(FILES)
	@$(RUN) -m pre_commit_hooks.check_merge_conflict --assume-in-merge $(TEXT)
	@$(RUN) -m pre_commit_hooks.end_of_file_fixer $(CODE)
	@$(RUN) -m pre_commit_hooks.trailing_whitespace_fixer $(CODE)

format: $(VENV)/.dev ## format the code, and fix what ruff can
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(VENV)/.bench ## measure beside the peers, in one run, as ratios
	$(RUN) -m benchmarks

dist: $(VENV)/.dev ## build the sdist and the wheel into dist/ and check them
	rm -rf dist
	$(RUN) -m build --outdir dist .
	$(RUN) -m twine check --strict dist/*
	$(if $(TAG),test -e dist/mm_metrics_plugin-$(TAG:v%=%).tar.gz # the tag is the version with a v)

lock: $(VENV)/.bench ## write the installed versions to requirements/lock.txt, the set the tests run on
	(echo "# The versions everything was tested with, on Python 3.11; written by make lock."; echo "setuptools<81"; \
	 $(RUN) -m pip freeze --exclude-editable | sed -E 's/^mmcv @ .*/mmcv==$(MMCV)/; s/\+cpu$$//') > requirements/lock.new
	mv requirements/lock.new requirements/lock.txt

clean: ## remove the environment and everything generated (the compiled mmcv stays in its cache)
	rm -rf $(VENV) .venv-* build dist *.egg-info work_dirs demo_output .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* .nox mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments: each stamp stands for one layer, installed on top of the one before -------------------------------

$(VENV)/.demo: setup.py $(DEMO:%=requirements/%.txt) requirements/lock.txt
	@echo "Setting up $(VENV) with torch $(TORCH), mmengine and scikit-learn (about 90 s) ..."
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(LOCKED) $(DEMO:%=--requirement requirements/%.txt) setuptools wheel
	@$(LOCKED) --no-build-isolation --no-deps --editable .
	@touch $@

$(WHEELS)/.built: | $(VENV)/.demo
	@echo "Compiling mmcv $(MMCV) for torch $(TORCH) (once; about 8 minutes on 2 cores) ..."
	@$(LOCKED) setuptools wheel ninja psutil
	@mkdir -p $(WHEELS)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MMCV_WITH_OPS=1 FORCE_CUDA=0 MAX_JOBS=$(JOBS) CFLAGS="-O1 -g0" \
	    $(PIP) wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir $(WHEELS) mmcv==$(MMCV)
	@touch $@

$(VENV)/.stack: $(VENV)/.demo $(WHEELS)/.built requirements/stack.txt
	@echo "Installing mmcv, mmdet, mmpretrain, mmseg and mmpose ..."
	@$(PIP) install --no-deps --no-index $(WHEELS)/mmcv-*.whl
	@# Its metadata wants an older torch, but it imports and works; newer ones do not, on a torch without CUDA.
	@said=$$($(PIP) install --no-deps torchvision==$(TORCHVISION) 2>&1) || { echo "$$said" >&2; exit 1; }
	@$(LOCKED) --requirement requirements/stack.txt
	@$(PIP) install --no-deps mmpose==$(MMPOSE)
	@$(PIP) install --no-deps --no-build-isolation --no-binary xtcocotools xtcocotools==$(XTCOCOTOOLS)
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	@echo "Installing the linters and the build tools ..."
	@$(LOCKED) --requirement requirements/dev.txt
	@touch $@

$(VENV)/.tests: $(VENV)/.stack $(VENV)/.dev requirements/tests.txt
	@echo "Installing the test tools ..."
	@$(LOCKED) --requirement requirements/tests.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.demo requirements/docs.txt
	@echo "Installing the tools of the documentation ..."
	@$(LOCKED) --requirement requirements/docs.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.tests requirements/bench.txt
	@echo "Installing the peers ..."
	@$(LOCKED) --requirement requirements/bench.txt
	@touch $@

$(VENV)/.mutation: $(VENV)/.tests requirements/mutation.txt
	@$(LOCKED) --requirement requirements/mutation.txt
	@touch $@

$(FORK_WHEELS)/.built:
	@echo "Compiling onedl-mmcv $(FORK_MMCV) for torch $(TORCH) (once; about 8 minutes on 2 cores) ..."
	@test -x $(FORKS)/bin/python || $(PYTHON) -m venv $(FORKS)
	@$(FORK_PIP) install --constraint requirements/lock.txt torch numpy setuptools wheel ninja psutil
	@mkdir -p $(FORK_WHEELS)
	@PATH="$(CURDIR)/$(FORKS)/bin:$$PATH" MMCV_WITH_OPS=1 FORCE_CUDA=0 MAX_JOBS=$(JOBS) CFLAGS="-O1 -g0" \
	    $(FORK_PIP) wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir $(FORK_WHEELS) onedl-mmcv==$(FORK_MMCV)
	@touch $@

$(FORKS)/.stack: $(FORK_WHEELS)/.built setup.py requirements/forks.txt requirements/runtime.txt requirements/lock.txt
	@echo "Installing the forks ..."
	@test -x $(FORKS)/bin/python || $(PYTHON) -m venv $(FORKS)
	@$(FORK_PIP) install --constraint requirements/lock.txt torch numpy setuptools wheel
	@$(FORK_PIP) install --no-deps --no-index $(FORK_WHEELS)/onedl_mmcv-*.whl
	@said=$$($(FORK_PIP) install --no-deps torchvision==$(TORCHVISION) 2>&1) || { echo "$$said" >&2; exit 1; }
	@# The lock names the packages of the forks' elder siblings, which they replace.
	@grep -v '^mm' requirements/lock.txt > $(FORKS)/lock.txt
	@$(FORK_PIP) install --constraint $(FORKS)/lock.txt --requirement requirements/forks.txt \
	    $(FORK_RUNTIME) imgaug pycocotools pillow requests pytest hypothesis scikit-learn tensorboard supervision \
	    torchmetrics
	@# mmdet imports imgaug, whose last release uses a name that NumPy 2 removed.
	@sed -i 's/np\.sctypes/np._core.sctypes/' $(FORKS)/lib/python3.11/site-packages/imgaug/imgaug.py
	@$(FORK_PIP) install --no-build-isolation --no-deps --editable .
	@touch $@
