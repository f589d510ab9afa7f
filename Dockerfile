# The program dueq in a small image: `docker build -t dueq .`, then `docker run dueq --help`.
# docker-compose.yml builds the worker and the shell from it.
FROM rust:1-slim-bookworm AS build
WORKDIR /dueq
COPY . .
RUN cargo build --release --locked --package dueq-cli

FROM debian:bookworm-slim AS dueq
COPY --from=build /dueq/target/release/dueq /usr/local/bin/dueq
RUN useradd --system --no-create-home dueq
USER dueq
# On SIGTERM a worker finishes its running handlers.
STOPSIGNAL SIGTERM
ENTRYPOINT ["dueq"]
CMD ["--help"]

# The same program with redis-cli, a shell, and the producers of examples/clients.
FROM redis:8 AS shell
COPY --from=build /dueq/target/release/dueq /usr/local/bin/dueq
COPY examples/clients /clients
WORKDIR /clients
USER redis
ENTRYPOINT ["bash"]
