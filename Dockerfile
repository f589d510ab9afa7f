# syntax=docker/dockerfile:1
# The program dueq in an image without anything else: `docker build -t dueq .`, then `docker run dueq --help`.
# docker-compose.yml builds all its services from it.
FROM rust:1-slim-bookworm AS build
# A static program needs nothing of its image but the CA certificates, for rediss:// and https://. jemalloc is built by make.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates make musl-tools \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /dueq
COPY . .
# The caches keep what was downloaded and compiled, and are no part of the image: the second build compiles what changed.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/dueq/target \
    cargo build --profile dist --locked --package dueq-cli --target "$(uname -m)-unknown-linux-musl" \
    && install -D -t /image/usr/bin "target/$(uname -m)-unknown-linux-musl/dist/dueq" \
    && install -D -m 0644 -t /image/etc/ssl/certs /etc/ssl/certs/ca-certificates.crt

# The same program with redis-cli, a shell, and the producers of examples/clients.
FROM redis:8 AS shell
COPY --from=build /image/usr/bin/dueq /usr/local/bin/dueq
COPY examples/clients /clients
WORKDIR /clients
# The user redis.
USER 999:1000
ENTRYPOINT ["bash"]

FROM scratch AS dueq
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dueq" \
      org.opencontainers.image.description="A delay queue on Redis: HTTP API, dashboard, workers and command line" \
      org.opencontainers.image.url="https://github.com/dueq/dueq" \
      org.opencontainers.image.source="https://github.com/dueq/dueq" \
      org.opencontainers.image.documentation="https://github.com/dueq/dueq/blob/main/docs/guide/deployment.md#container" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /image /
USER 65532:65532
EXPOSE 8377
# On SIGTERM a worker finishes its running handlers.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/dueq"]
CMD ["--help"]
