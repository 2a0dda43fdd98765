# SPDX-License-Identifier: Apache-2.0
# Faults: celld-faults is the daemon with whatever can fail wrapped (tests/faults/plan.h). `make test` hands it to the suites faults_*;
# `make faults` runs the whole integration suite with each call interrupted and each transfer cut in half (FAULTS=eintr,short1: to a byte; CK_RUN_SUITE=name alone).

# All that has a wrapper is wrapped. The C library stays outside: what it allocates by itself has a wrapper of its own.
$(B)/celld-faults: $(call obj,$(FAULT) $(DAEMON) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link tests/faults/faults.mk
	$(call link,$(filter %.o,$^) $$(nm $(call obj,$(FAULT)) | sed -n 's/.* T __wrap_/-Wl$(comma)--wrap=/p'),$(LIBS_T))

FAULTS ?= eintr,half
faults: $(NEED) $(B)/celld-faults $(B)/celld-gateway $(B)/integration-tests
	@FAULTS_ALL=$(FAULTS) CELLD=$(abspath $(B)/celld-faults) GATEWAY=$(abspath $(B)/celld-gateway) \
		sh tests/run.sh - - $(B)/integration-tests
