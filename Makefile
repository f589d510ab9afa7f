# `make` lists the targets. Needed: Rust, a C compiler, make, bash and Python; scripts/server finds or fetches a Redis.
.PHONY: help lua demo dashboard dashboard-long test matrix mutants conformance conformance-long chaos chaos-cluster chaos-cluster-long fuzz instructions many-queues poison limits schedules serve uniqueness slowhttp curl-consumers history operations cluster check unused msrv package clean

help:
	@echo 'dueq, a delay queue on Redis'
	@echo
	@echo 'make demo      rates two years of real orders five stars, each 48 hours after its delivery, in about a minute'
	@echo '               ARGS="--workers 3 --json" passes options on; ARGS=--help lists them'
	@echo '               REDIS_URL=redis://... uses that server instead of starting one'
	@echo 'make dashboard shows the dashboard of dueq serve with workers, producers and faults until ctrl-c, and prints its address'
	@echo '               ARGS="--listen 127.0.0.1:9000" passes options on'
	@echo 'make dashboard-long measures its pages in Chromium beside 10,000,000 messages, and on a busy queue for an hour; needs 8 GB'
	@echo '               fails if a number is wrong or memory grows; ARGS="--only big --messages 1000000 --strict" passes options on'
	@echo 'make test      runs every test, each on a Redis server of its own'
	@echo '               DUEQ_TEST_SERVERS=/path/redis-server:/path/valkey-server tests on these, one after the other'
	@echo 'make browser   tests the pages of the dashboard in Chromium, behind nginx and Caddy too; 3 minutes. Screenshots are in target/browser'
	@echo '               (Chromium and node from the distribution, the rest from npm) ARGS=live.test.mjs runs one file'
	@echo 'make matrix    runs the tests of protocol and library on Redis 7.0, Redis 8.0, Valkey 8.0 and Valkey 9.1, two at a time'
	@echo '               (scripts/server finds the first server, the others are fetched); DUEQ_TEST_SERVERS names others'
	@echo 'make mutants   breaks the scripts on purpose, more than a hundred times, and checks that the tests fail; 10 minutes'
	@echo '               ARGS="--only claim --some 10 --jobs 4" passes options on'
	@echo 'make conformance  tests dueq serve against its OpenAPI document as each role: SECONDS=120 in all'
	@echo 'make conformance-long  the same for 20 minutes'
	@echo '               (Schemathesis from PyPI and redocly from npm, which it installs below target/)'
	@echo 'make chaos     runs the queue under faults: SEED=1 DURATION=60 (seconds) unless set; proof/README.md describes it'
	@echo '               ARGS="--rate 5000 --faults worker_kill,net_cut" passes options on'
	@echo 'make chaos-cluster       runs fifty queues on a cluster of six servers under faults, with five seeds of a minute each'
	@echo 'make chaos-cluster-long  the same with SEED=1 for a quarter of an hour'
	@echo 'make fuzz      feeds arbitrary bytes to every parser of outside input: TARGET=reply DURATION=60 (seconds for each target)'
	@echo '               with cargo-fuzz and nightly Rust if they are installed, else without; fuzz/README.md lists the targets'
	@echo 'make instructions  counts the instructions of Redis for each message (callgrind), beside bench/instructions.json; 3 minutes'
	@echo 'make many-queues   measures one node with many queues: cost, a broken queue, reserves, shares; 45 minutes'
	@echo '               ARGS="--scripts DIR --rounds 4" passes options on'
	@echo 'make poison    handles 100,000 messages by batches of 100, one poison in 10,000, by dueq work --exec and in-process; 5 minutes'
	@echo '               fails if an innocent message dies; ARGS="--messages 10000 --one-in 1000 --only exec" passes options on'
	@echo 'make limits    proves rate and max_leased under kills and failovers, breaks and expiry; 15 minutes'
	@echo '               ARGS="--only rate --minutes 2 --json" passes options on'
	@echo 'make schedules proves recurring schedules under kills, stops and failovers, and their previews; 15 minutes'
	@echo '               ARGS="--only preview --patterns 1000 --fires 1000" passes options on'
	@echo 'make serve     measures dueq serve: what reads cost Redis beside 10,000,000 messages, memory, pushes, claims; 15 minutes'
	@echo '               ARGS="--only bounds --waiting 1000000 --queues 99" passes options on'
	@echo 'make uniqueness proves windows, debounces and next messages under lost replies and kills; 10 minutes'
	@echo '               fails if a judgement does; ARGS="--only window --pushes 100000" passes options on'
	@echo 'make operations requeues 100,000 dead messages over HTTP while others die, with all other tests of operations; 3 minutes'
	@echo '               DUEQ_OPERATIONS_DEAD=1000000 sets another number'
	@echo 'make history   compares GET history of dueq serve with what the test counts, while Redis, workers and server are restarted; 15 minutes'
	@echo '               MINUTES=60 runs for so long'
	@echo 'make curl-consumers  consumes 10,000 messages over HTTP by shell scripts with curl, while all are killed; 8 minutes or more, needs nginx'
	@echo '               MESSAGES=1000 for fewer'
	@echo 'make slowhttp  attacks dueq serve with slow heads, bodies and reads of 900 connections (slowhttptest); half a minute'
	@echo '               fails if another request is not answered meanwhile; ARGS="60 1000" attacks for 60 s each, with 1,000'
	@echo 'make cluster   runs three masters and three replicas on this machine until ctrl-c, and prints their URL'
	@echo '               ARGS="--masters 6 --replicas 0 --port 8001" passes options on; ARGS=--help lists them'
	@echo 'make lua       writes lua/dist, the scripts that clients load, from lua and lua/blocks; a test fails if they differ'
	@echo 'make check     formatting, lints and docs, with warnings denied'
	@echo 'make unused    lists dependencies that no source file names'
	@echo 'make msrv      compiles with the oldest supported Rust'
	@echo 'make package   builds the crate from the files that would be published'
	@echo 'make clean     removes target/, with everything that was built or fetched'
	@echo
	@echo '.ci/run runs all of these except demo, dashboard, dashboard-long, conformance-long, chaos-cluster, chaos-cluster-long, fuzz, instructions, many-queues, poison, limits, schedules, serve, uniqueness, slowhttp, curl-consumers, history, operations, cluster and clean (of matrix the protocol tests, of mutants ten).'

demo:
	@echo 'dueq demo: compiles a release build (1 to 3 minutes the first time), finds a Redis server, then runs for about a minute'
	@test -n "$$REDIS_URL" || scripts/server >/dev/null
	@cargo build --target-dir target --release --locked --example order_auto_rating
	@scripts/with-server target/release/examples/order_auto_rating $(ARGS)

dashboard:
	@echo 'dueq dashboard: compiles a release build (1 to 5 minutes the first time), finds a Redis server, then runs until ctrl-c'
	@test -n "$$REDIS_URL" || scripts/server >/dev/null
	@cargo build --target-dir target --release --locked --package dueq-cli
	@scripts/with-server scripts/dashboard $(ARGS)

dashboard-long:
	@echo 'dueq dashboard-long: fetches Chromium, compiles a release build (1 to 5 minutes the first time), then runs for 80 minutes'
	@scripts/browser --install
	@cargo build --target-dir target --release --locked --package dueq-cli
	@DUEQ_PROGRAM=$(CURDIR)/target/release/dueq node serve/tests/browser/long.mjs $(ARGS)

test:
	@echo 'dueq test: finds a Redis server, compiles (1 to 3 minutes the first time), then runs every test (under 5 minutes)'
	@servers=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && IFS=: && for server in $$servers; do \
		export DUEQ_TEST_SERVERS=$$server && echo "on $$server" && scripts/test || exit; \
	done

browser:
	@echo 'dueq browser: fetches Chromium, compiles (1 to 3 minutes the first time), then runs for 3 minutes'
	@scripts/browser --install
	@cargo build --target-dir target --locked --package dueq-cli
	@scripts/browser $(ARGS)

matrix:
	@echo 'dueq matrix: finds and fetches servers, compiles (1 to 3 minutes the first time), then takes some minutes a server'
	@scripts/matrix --test protocol --test library

mutants:
	@echo 'dueq mutants: finds a Redis server, compiles (1 to 3 minutes the first time), then takes about 10 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && scripts/mutants $(ARGS)

SECONDS ?= 120
conformance:
	@echo 'dueq conformance: installs the tools, compiles (1 to 3 minutes the first time), then runs for SECONDS and a little more'
	@scripts/conformance --install
	@cargo build --target-dir target --locked --package dueq-cli
	@scripts/conformance $(SECONDS) $(ARGS)

conformance-long:
	@$(MAKE) --no-print-directory conformance SECONDS=1200

SEED ?= 1
DURATION ?= 60
chaos:
	@echo 'dueq chaos: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then runs for DURATION seconds'
	@cargo build --target-dir target --release --locked --package dueq-proof
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	target/release/dueq-proof chaos --seed $(SEED) --duration $(DURATION) $(ARGS)

CLUSTER_SEEDS ?= 1 2 3 4 5
chaos-cluster:
	@echo 'dueq chaos-cluster: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then takes 7 minutes'
	@cargo build --target-dir target --release --locked --package dueq-proof
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	for seed in $(CLUSTER_SEEDS); do \
		target/release/dueq-proof chaos --cluster --seed $$seed --duration 60 $(ARGS) || exit; \
	done

chaos-cluster-long:
	@echo 'dueq chaos-cluster-long: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then takes 16 minutes'
	@cargo build --target-dir target --release --locked --package dueq-proof
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	target/release/dueq-proof chaos --cluster --seed $(SEED) --duration 900 $(ARGS)

fuzz:
	@scripts/fuzz '$(TARGET)' $(DURATION)

instructions:
	@echo 'dueq instructions: finds a Redis server, compiles a release build (1 to 3 minutes the first time), then counts for 2 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-bench -- instructions --compare bench/instructions.json $(ARGS)

many-queues:
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-bench -- many-queues $(ARGS)

cluster:
	@scripts/cluster $(ARGS)

slowhttp:
	@echo 'dueq slowhttp: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for half a minute'
	@scripts/server >/dev/null
	@cargo build --target-dir target --release --locked --package dueq-cli
	@scripts/with-server scripts/slowhttp $(ARGS)

poison:
	@echo 'dueq poison: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 5 minutes'
	@cargo build --target-dir target --release --locked --package dueq-cli
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-proof -- poison $(ARGS)

uniqueness:
	@echo 'dueq uniqueness: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 10 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-proof -- uniqueness $(ARGS)

operations:
	@echo 'dueq operations: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 3 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	DUEQ_OPERATIONS_DEAD=$${DUEQ_OPERATIONS_DEAD:-100000} \
	cargo test --target-dir target --release --locked --package dueq-serve --test http -- operations:: --nocapture

MINUTES ?= 15
history:
	@echo 'dueq history: finds a Redis server, compiles the tests (1 to 3 minutes the first time), then runs for MINUTES minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	DUEQ_HISTORY_MINUTES=$(MINUTES) cargo test --locked --package dueq-serve --test http -- history::restarts --nocapture

limits:
	@echo 'dueq limits: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 15 minutes'
	@cargo build --target-dir target --release --locked --package dueq-cli
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-proof -- limits $(ARGS)

schedules:
	@echo 'dueq schedules: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 15 minutes'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-proof -- schedules $(ARGS)

MESSAGES ?= 10000
curl-consumers:
	@echo 'dueq curl-consumers: finds a Redis server, compiles (1 to 3 minutes the first time), then runs for 8 minutes or more; needs nginx and curl'
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	DUEQ_CONSUMERS_MESSAGES=$(MESSAGES) cargo test --locked --package dueq-cli --test consumers -- --nocapture

serve:
	@echo 'dueq serve: finds a Redis server, compiles a release build (1 to 5 minutes the first time), then runs for about 15 minutes'
	@cargo build --target-dir target --release --locked --package dueq-cli
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && export DUEQ_TEST_SERVERS && \
	cargo run --target-dir target --release --locked --package dueq-bench -- serve $(ARGS)

lua:
	@scripts/lua-dist

check:
	@.ci/run formatting lints docs

unused msrv package:
	@.ci/run $@

clean:
	cargo clean
