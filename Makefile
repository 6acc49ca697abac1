# The front door. Real work happens in CMake presets (CMakePresets.json); this file only names jobs.
.DEFAULT_GOAL := all
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Seconds each fuzz target runs in `make fuzz`.
FUZZ_SECONDS ?= 60

PREFIX ?= /usr/local
# Further options of `make serve`.
SERVE ?=

.PHONY: all deps install deb test demo serve bench format tidy asan tsan fuzz clean help

all: deps ## release build -> build/berth
	@tools/build.sh release $(JOBS)
	@ln -sf release/berth build/berth
	@echo "built build/berth"

deps: ## install what is missing from Debian's packages (no-op when all is there)
	@tools/deps.sh build

install: all ## program, library, man page, completions, unit, demo under PREFIX (default /usr/local)
	@cmake --install build/release --prefix "$(PREFIX)"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo 'not on your PATH yet: export PATH="$(PREFIX)/bin:$$PATH"' ;; esac

deb: deps ## Debian packages -> build/deb/packages
	@tools/deps.sh deb
	@tools/build.sh deb $(JOBS)
	@cd build/deb && rm -rf packages && cpack --config CPackConfig.cmake > cpack.log 2>&1 || { cat cpack.log; exit 1; }
	@ls build/deb/packages/*.deb

test: deps ## build and run every test
	@tools/deps.sh test
	@tools/build.sh dev $(JOBS)
	@tools/test.sh dev $(JOBS)

demo: all ## a minute's tour: a plan, pictures (build/demo.png), who holds what, a free and its receipt
	@tools/demo.sh build/berth

serve: all ## the server with the demo model on http://127.0.0.1:8188 (SERVE="--port 9000 ..." adds options)
	@exec build/berth serve --demo $(SERVE)

bench: all ## run the benchmarks (ratios against a reference in the same run)
	@tools/bench.sh build/release/bench

asan: deps ## all tests under AddressSanitizer + UndefinedBehaviorSanitizer
	@tools/deps.sh test
	@tools/build.sh asan $(JOBS)
	@tools/test.sh asan $(JOBS)

tsan: deps ## all tests under ThreadSanitizer
	@tools/deps.sh test
	@tools/build.sh tsan $(JOBS)
	@tools/test.sh tsan $(JOBS)

fuzz: deps ## run every fuzz target for FUZZ_SECONDS (default 60) with libFuzzer
	@tools/deps.sh test
	@tools/deps.sh fuzz
	@tools/build.sh fuzz $(JOBS)
	@tools/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(JOBS)

format: ## clang-format over all C sources
	@tools/deps.sh format
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

tidy: deps ## clang-tidy over src/
	@tools/deps.sh format
	@tools/build.sh dev $(JOBS)
	@git ls-files 'src/*.c' | xargs -P $(JOBS) -n 8 clang-tidy -p build/dev --quiet

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
