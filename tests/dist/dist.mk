# SPDX-License-Identifier: Apache-2.0
# `make dist`: what a release is made of, in build/dist: for each machine the static, stripped binary, its SPDX bill of materials and the notices
# that its libraries want kept with it; and SHA256SUMS. Each binary has run before it is there. `make dist-check` does it all a second time,
# elsewhere and otherwise, and compares.
#   DIST_ARCHS="x86_64 aarch64 riscv64"   which machines; the others than this one's run under qemu's user mode
#   SOURCE_DATE_EPOCH                     the date in the bill of materials; the last commit's, or where there is none the first of all dates

DIST_ARCHS ?= x86_64 aarch64 riscv64
STRIP ?= strip
DEPS_DIST := python3 python3-venv $(if $(filter-out x86_64,$(DIST_ARCHS)),qemu-user dpkg-dev) \
	$(if $(filter aarch64,$(DIST_ARCHS)),gcc-aarch64-linux-gnu) \
	$(if $(filter riscv64,$(DIST_ARCHS)),gcc-riscv64-linux-gnu libc6-dev-riscv64-cross autoconf automake libtool gperf)

.PHONY: dist dist-check dist-deps
dist dist-check: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
dist dist-check: export PACKAGES := $(filter-out gcc make pkg-config protobuf-c-compiler node-llhttp ip%,$(DEPS))
dist-deps:
	@sh .ci/deps $(DEPS) $(DEPS_DIST)
dist: dist-deps
	@sh tests/dist/dist.sh $(B)/dist $(DIST_ARCHS)
dist-check: dist
	@sh tests/dist/check.sh $(B)/dist $(DIST_ARCHS)
