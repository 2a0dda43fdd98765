# SPDX-License-Identifier: Apache-2.0
# `make image-test`: the Dockerfile's images, built and run on this machine alone: on a Debian that is made of packages, by podman, with
# storage of its own in the build directory. No registry is asked for anything, and `make clean` takes it all away. Needs root.

DEPS_IMAGE := podman crun mmdebstrap python3 util-linux

.PHONY: image-test
image-test:
	@DEPS='$(DEPS_IMAGE)' bash tests/image/run.sh $(B)/image
