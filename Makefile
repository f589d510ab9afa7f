# `make` lists the targets. Needed: Rust, a C compiler, make, bash and Python; scripts/server finds or fetches a Redis.
.PHONY: help lua demo test matrix mutants chaos fuzz instructions check unused msrv package clean

help:
	@echo 'dueq, a delay queue on Redis'
	@echo
	@echo 'make demo      two years of real orders, rated five stars 48 hours after delivery, in about a minute'
	@echo '               ARGS="--workers 3 --json" are passed on; ARGS=--help lists more'
	@echo '               REDIS_URL=redis://... uses that server, not one of its own'
	@echo 'make test      every test, each on a Redis server of its own'
	@echo '               DUEQ_TEST_SERVERS=/path/redis-server:/path/valkey-server tests on these, one after the other'
	@echo 'make matrix    the tests of protocol and library on Redis 7.0, Redis 8.0, Valkey 8.0 and Valkey 9.1, one after the other'
	@echo '               (the first is what scripts/server finds; the others are fetched); DUEQ_TEST_SERVERS names others'
	@echo 'make mutants   breaks the scripts on purpose, more than a hundred times, and has the tests of the protocol notice; in 10 minutes'
	@echo '               ARGS="--only claim --some 10 --jobs 4" are passed on'
	@echo 'make chaos     a run under faults: SEED=1 DURATION=60 are what it does unless told otherwise, chaos/README.md says the rest'
	@echo '               ARGS="--rate 5000 --faults worker_kill,net_cut" are passed on'
	@echo 'make fuzz      whatever is read from outside, by bytes that nobody thought of: TARGET=reply DURATION=60 (seconds a target);'
	@echo '               by cargo-fuzz and nightly Rust where they are, else without; fuzz/README.md lists the targets'
	@echo 'make instructions  instructions of Redis per message (callgrind), beside those in bench/instructions.json; in 3 minutes'
	@echo '               ARGS="--scripts DIR --rounds 4" are passed on'
	@echo 'make lua       writes lua/dist, the scripts as they are loaded, from lua and lua/blocks; a test says when that is due'
	@echo 'make check     formatting, lints and docs, with warnings denied'
	@echo 'make unused    dependencies that no source file names'
	@echo 'make msrv      compiles with the oldest Rust that is promised'
	@echo 'make package   builds the crate from the files that would be published'
	@echo 'make clean     removes target/: all that was built or fetched'
	@echo
	@echo '.ci/run runs all of them (of matrix the tests of protocol, of mutants ten) but demo, fuzz, instructions and clean.'

demo:
	@echo 'dueq demo: compiles a release build (1 to 3 minutes the first time), finds a Redis server, then runs for about a minute'
	@test -n "$$REDIS_URL" || scripts/server >/dev/null
	@cargo build --target-dir target --release --locked --example order_auto_rating
	@scripts/with-server target/release/examples/order_auto_rating $(ARGS)

test:
	@echo 'dueq test: finds a Redis server, compiles (1 to 3 minutes the first time), then runs every test (under 5 minutes)'
	@servers=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && IFS=: && for server in $$servers; do \
		export DUEQ_TEST_SERVERS=$$server && echo "on $$server" && \
		cargo test --workspace --all-targets --locked && \
		cargo test --workspace --doc --locked || exit; \
	done

matrix:
	@echo 'dueq matrix: finds and fetches servers, compiles (1 to 3 minutes the first time), then takes some minutes a server'
	@scripts/matrix --test protocol --test library

mutants:
	@echo 'dueq mutants: finds a Redis server, compiles (1 to 3 minutes the first time), then takes about 10 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && scripts/mutants $(ARGS)

SEED ?= 1
DURATION ?= 60
chaos:
	@echo 'dueq chaos: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then runs for a while'
	@cargo build --target-dir target --release --locked --package dueq-chaos
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	target/release/dueq-chaos run --seed $(SEED) --duration $(DURATION) $(ARGS)

fuzz:
	@scripts/fuzz '$(TARGET)' $(DURATION)

instructions:
	@echo 'dueq instructions: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then counts for 2 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-bench -- instructions --compare bench/instructions.json $(ARGS)

lua:
	@scripts/lua-dist

check:
	@.ci/run formatting lints docs

unused msrv package:
	@.ci/run $@

clean:
	cargo clean
