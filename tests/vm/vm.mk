# SPDX-License-Identifier: Apache-2.0
# `make vm`: a machine of its own under qemu, with the kernel that Debian has for clouds: unified cgroup v2 with its controllers, Landlock,
# seccomp, and celld as the machine's PID 1. Of all this only qemu, cpio and curl are installed; kernel and image stay in the build directory.
#   VM_SUITES='cgroup.*|pid1'   the suites of the integration tests that run inside (an extended regular expression)

VM_SUITES ?= cgroup.*|confine.*|capabilities|request_limits|memory

.PHONY: vm
vm: $(NEED) $(B)/celld $(B)/integration-tests
	@bash tests/vm/run.sh $(abspath $(B)) '$(VM_SUITES)'
