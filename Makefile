# `make` lists the targets. Needed: Rust, a C compiler, make, bash and Python; scripts/server finds or fetches a Redis.
.PHONY: help demo dashboard test check dist ops lua clients proof bench cluster clean

help:
	@echo 'dueq, a delay queue on Redis'
	@echo
	@echo 'make demo       rates two years of real orders five stars, each 48 hours after its delivery, in about a minute'
	@echo '                REDIS_URL=redis://... uses that server instead of starting one'
	@echo 'make dashboard  shows the dashboard of dueq serve with workers, producers and faults until ctrl-c, and prints its address'
	@echo 'make cluster    runs three masters and three replicas on this machine until ctrl-c, and prints their URL'
	@echo 'make test       runs every test, each on a Redis server of its own'
	@echo '                DUEQ_TEST_SERVERS=/path/redis-server:/path/valkey-server tests on these, one after the other'
	@echo 'make check      formatting, lints, docs, unused dependencies, the packed crate and the oldest Rust'
	@echo 'make dist       packs the program into target/dist: archive, wheel, npm, Debian, Homebrew, SBOM; a release build first'
	@echo '                and the libraries of clients/ into target/dist/clients: wheel, sdist, npm, jars, zip of the Go module'
	@echo 'make ops        packages, workflows, image, chart and rules, each by the tools that people run; target/tools has these'
	@echo 'make lua        writes lua/dist, the scripts that clients load, from lua and lua/blocks'
	@echo 'make clients    checks the libraries of clients/ with the toolchains of this machine, and names what it leaves out'
	@echo 'make proof      lists the long proofs: chaos, mutants, servers, browser, conformance, fuzz and more'
	@echo '                NAME=chaos runs one'
	@echo 'make bench      lists the measurements; NAME=instructions makes one'
	@echo 'make clean      removes target/, with everything that was built or fetched'
	@echo
	@echo 'ARGS="--help" passes options to demo, dashboard, cluster, proof and bench. .ci/run runs what a change must pass.'

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

cluster:
	@scripts/cluster $(ARGS)

test:
	@echo 'dueq test: finds a Redis server, compiles (3 minutes the first time, on two cores), then runs every test (7 minutes)'
	@servers=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} && IFS=: && for server in $$servers; do \
		export DUEQ_TEST_SERVERS=$$server && echo "on $$server" && scripts/test || exit; \
	done

check:
	@.ci/run formatting unused lints docs package msrv

dist:
	@scripts/dist $(ARGS)
	@$(if $(ARGS),,scripts/clients/pack)

ops:
	@scripts/ops $(NAME)

lua:
	@scripts/lua-dist

clients:
	@scripts/clients/check $(ARGS)

proof:
	@scripts/proof $(or $(NAME),--list) $(ARGS)

bench:
	@cargo build --target-dir target --release --locked --package dueq-cli --package dueq-bench
	@DUEQ_TEST_SERVERS=$${DUEQ_TEST_SERVERS:-$$(scripts/server)} \
	target/release/dueq-bench $(or $(NAME),help) $(or $(ARGS),$(if $(filter instructions,$(NAME)),--compare bench/instructions.json))

clean:
	cargo clean
