# gander with goose inside, for one machine's own use or as a base: the tools that an agent's shell is to find
# (git, compilers, …) are for an image on top of this one.
#
#   docker build -t gander .
#   docker run --read-only --tmpfs /tmp:exec --tmpfs /home/gander:exec,uid=10001,gid=10001,mode=0700 \
#     -p 127.0.0.1:4665:4665 -v gander-state:/var/lib/gander \
#     -v "$PWD/tokens.toml:/run/secrets/gander-tokens.toml:ro" \
#     -e GANDER_AUTH__TOKENS_FILE=/run/secrets/gander-tokens.toml \
#     -e GANDER_GOOSE__PROVIDER=openai -e OPENAI_API_KEY \
#     gander
#
# Without a tokens file gander makes a token at its first start and keeps it in the volume:
# `docker exec CONTAINER gander token` prints it. `docker run … gander serve --demo` needs no provider.
# The tokens file must be readable for user 10001; deploy/tokens.example.toml shows what is in it.

# Base images, by exact versions; raise them to get Debian's fixes. A tag can still be moved, a digest cannot: whoever
# builds takes the digests from the registry that they trust, or a mirror's images:
#     docker build --build-arg RUNTIME_IMAGE=debian:bookworm-20251117-slim@sha256:… …
# The build image brings the toolchain that rust-toolchain.toml names; the build and the runtime image must go together
# (the same C library).
ARG RUST_IMAGE=rust:1.95.0-bookworm
ARG NODE_IMAGE=node:22.21.1-bookworm-slim
ARG RUNTIME_IMAGE=debian:bookworm-20251117-slim

# goose, by the same script and the same pin as in development.
FROM ${NODE_IMAGE} AS goose
WORKDIR /src
COPY scripts/goose scripts/goose
RUN path="$(scripts/goose)" && mv "$path" /goose

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin gander && mv target/release/gander /gander

FROM ${RUNTIME_IMAGE}
# goose needs libstdc++, and certificates to reach a provider.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libstdc++6 \
    && rm -rf /var/cache/apt/* /var/lib/apt/lists/*
# The ids are fixed, so that files can be given to the user from outside. The home is apart from the state: it
# holds only what an agent's tools leave there, and may be a tmpfs.
RUN groupadd --gid 10001 gander \
    && useradd --uid 10001 --gid gander --home-dir /home/gander --shell /usr/sbin/nologin gander \
    && install --directory --owner gander --group gander --mode 0700 /home/gander /var/lib/gander
COPY --from=goose /goose /usr/local/bin/goose
COPY --from=build /gander /usr/local/bin/gander

# In a container every address is the outside's; what is published, and where, is for whoever runs it to say.
ENV HOME=/home/gander \
    GANDER_SERVER__LISTEN=0.0.0.0:4665 \
    GANDER_STORAGE__DIR=/var/lib/gander \
    GANDER_GOOSE__COMMAND=/usr/local/bin/goose
USER gander
WORKDIR /var/lib/gander
VOLUME /var/lib/gander
EXPOSE 4665
# Asks /healthz of the configured address; there is no curl in the image.
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s CMD ["gander", "health"]
# gander is process 1 and reaps what its agents leave: no init is needed. On SIGTERM running turns may go on for
# server.shutdown_grace (20 s), so give it longer than that: `docker stop -t 30`. Sessions go on in the next container
# on the same volume.
ENTRYPOINT ["gander"]
CMD ["serve"]
