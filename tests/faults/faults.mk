# SPDX-License-Identifier: Apache-2.0
# Faults: celld-faults is the daemon with whatever can fail wrapped (tests/faults/plan.h). `make test` hands it to the suites faults_*;
# `make faults` runs the whole integration suite with each call interrupted (FAULTS=eintr,half: each transfer cut in half, too; short1: to a byte; CK_RUN_SUITE=name alone).

# All that has a wrapper is wrapped. The C library stays outside: what it allocates by itself has a wrapper of its own.
$(B)/celld-faults: $(call obj,$(FAULT) $(DAEMON) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link tests/faults/faults.mk
	$(call link,$(filter %.o,$^) $$(nm $(call obj,$(FAULT)) | sed -n 's/.* T __wrap_/-Wl$(comma)--wrap=/p'),$(LIBS_T))

# First the suites faults_* with every call in their turn (FAULTS_FULL; `make test` takes some of them), then the others under FAULTS.
FAULTS ?= eintr
FAULTY := $(abspath $(B)/celld-faults)
faults: $(NEED) $(B)/celld $(B)/celld-faults $(B)/celld-gateway $(B)/integration-tests
	@export GATEWAY=$(abspath $(B)/celld-gateway) CELLD_FAULTY=$(FAULTY); \
	[ -n "$$CK_RUN_SUITE" ] || FAULTS_FULL=1 CELLD=$(abspath $(B)/celld) CK_RUN_SUITE='faults_.*' \
		sh tests/run.sh - - $(B)/integration-tests || failed=1; \
	FAULTS_ALL=$(FAULTS) CELLD=$(FAULTY) sh tests/run.sh - - $(B)/integration-tests && [ -z "$$failed" ]
