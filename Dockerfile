# SPDX-License-Identifier: Apache-2.0
# Two images. `base` is a sandbox as it is, and what images of your own build on; `binary` is one file, for COPY --from:
#   docker build --target base -t celld-base .
#   docker build --target binary -t celld-binary .
# Nothing is downloaded but Debian's packages, and nothing in it needs BuildKit.

# Another Debian 12 by --build-arg DEBIAN=NAME: a mirror's, or one by digest.
ARG DEBIAN=debian:12-slim

FROM ${DEBIAN} AS build
# What the binary is made of, and not what its tests want besides. Before the sources are copied, so that a change of them does not ask for it again.
RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
	gcc libc6-dev make libev-dev node-llhttp libb64-dev libjansson-dev uthash-dev \
	protobuf-c-compiler libprotobuf-c-dev libmd-dev zlib1g-dev libseccomp-dev
WORKDIR /src
# .dockerignore lets in only what it takes to build.
COPY . .
# --version: a binary that does not run makes no image. The libraries are linked in: their licences want these texts to go with the binary.
RUN make -j"$(nproc)" BUILD=/out /out/celld && /out/celld --version && mkdir /out/doc && cp LICENSE /out/doc/ && \
	for p in gcc-12-base libc6-dev libev-dev node-llhttp libb64-dev libjansson-dev uthash-dev libprotobuf-c-dev libmd-dev zlib1g-dev \
		libseccomp-dev; do echo "== $p" && cat "/usr/share/doc/$p/copyright" || exit 1; done >/out/doc/copyright

# The binary is static: it asks nothing of the image that it is copied to but a /bin/sh for commands. This one has none, so it is no sandbox.
FROM scratch AS binary
COPY --from=build /out/celld /celld
ENTRYPOINT ["/celld"]

# The last stage is what a build without --target makes.
FROM ${DEBIAN} AS base
LABEL org.opencontainers.image.title="celld" \
	org.opencontainers.image.description="Commands, files, terminals and watches of a sandbox over HTTP" \
	org.opencontainers.image.licenses="Apache-2.0"
# The number is what securityContext and volumes know the user by. /workspace is his: a new volume that is mounted there takes that over.
RUN useradd --create-home --shell /bin/bash --uid 1000 --user-group user && install -d -o user -g user /workspace
COPY --from=build /out/doc /usr/share/doc/celld
COPY --from=build /out/celld /usr/local/bin/celld
# Commands run as `user`; celld itself stays root (there is no USER here): to become that user, to reset the workspace whatever is in it,
# and so that commands cannot signal it. `--user 1000` at the start of the container makes it one that never was root.
ENV CELLD_USER=user
EXPOSE 2024 49983
# No VOLUME: it would hide what images built on this one put into /workspace. No HEALTHCHECK: the init part restarts a daemon that dies, and
# orchestrators probe /health themselves. No shell around it and no other init: celld has to be PID 1 and hear TERM. Without CMD what follows
# the image's name are celld's options.
ENTRYPOINT ["/usr/local/bin/celld"]
