# SPDX-License-Identifier: Apache-2.0
# celld. `make` builds build/celld; `make demo` shows it at work; `make test` proves it; `make lint` keeps the house.
#   V=1 full command lines   DEV=1 -Werror   CC=clang   SAN=address,undefined sanitized build in build/san-*
#   BUILD=DIR another build directory        T_SCALE=N  factor on the tests' time limits

ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build
LLHTTP_DIR ?= /usr/share/llhttp
LLHTTP_INC ?= /usr/share/include/llhttp
PREFIX ?= /usr/local
RUN_ADDR ?= 127.0.0.1
RUN_PORT ?= 3000

comma := ,
B := $(BUILD)$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))
O := $(B)/obj$(if $(filter-out gcc cc,$(CC)),-$(notdir $(CC)))$(if $(DEV),-dev)

# What has to be there to build and test, and what `make lint`, `make fuzz` and `make conformance` need besides.
DEPS := gcc libc6-dev make pkg-config libev-dev node-llhttp libb64-dev check libsubunit-dev libjansson-dev uthash-dev \
	protobuf-c-compiler libprotobuf-c-dev libmd-dev zlib1g-dev libseccomp-dev iproute2 iptables
DEPS_LINT := clang clang-format
DEPS_FUZZ := libclang-rt-14-dev
DEPS_SDK := python3-venv git procps ca-certificates $(if $(shell command -v npm),,npm)

# Flags. libev's watchers are cast to each other, hence no strict aliasing (its manual asks for it).
WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings \
	-Wformat=2 -Wundef -Wpointer-arith -Wold-style-definition $(if $(DEV),-Werror)
CPPFLAGS += -I. -isystem $(B) -isystem $(LLHTTP_INC) -D_GNU_SOURCE -DLLHTTP_STRICT_MODE=1
BASE := -std=gnu11 -g -fno-strict-aliasing -fstack-protector-strong -ffunction-sections -fdata-sections
ifdef SAN
BASE += -O1 -fsanitize=$(SAN) -fno-omit-frame-pointer $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
LINK :=
else
BASE += -O2 -D_FORTIFY_SOURCE=2
LINK := -static
endif
LDFLAGS += -Wl,--gc-sections
# The test programs are dynamic but take these libraries as archives, so that --wrap=malloc sees their calls too.
LIBS := -lev -lb64 -ljansson -lprotobuf-c -lmd -lz -lseccomp
LIBS_T := -Wl,-Bstatic -lcheck -lsubunit $(LIBS) -Wl,-Bdynamic -lrt -lpthread -lm
WRAP := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free

PROTO := $(wildcard proto/*.c)
DAEMON := $(wildcard $(addprefix daemon/,*.c core/*.c net/*.c sandboxd/*.c envd/*.c ctl/*.c))
UNIT := $(wildcard tests/unit/*.c)
INTEGRATION := $(wildcard tests/integration/*.c)
DEMO := $(wildcard tests/demo/*.c)
BENCH := $(wildcard tests/bench/*.c)
SOAK := $(wildcard tests/soak/*.c)
GATEWAY := $(wildcard tests/gateway/*.c)
FUZZ := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_D := $(wildcard tests/fuzz/daemon/*.c)
FAULT := $(wildcard tests/faults/*.c)
GATEWAY_T := $(wildcard $(addprefix tests/gateway/,pool*.c options.c call.c ends.c tunnel.c box*.c job.c root.c))
obj = $(patsubst %.c,$(O)/%.o,$(1))
LLHTTP_O := $(addprefix $(O)/llhttp/,api.o http.o llhttp.o)
PB := $(patsubst proto/%.proto,$(B)/proto/%.pb-c,$(wildcard proto/*.proto))
PB_O := $(patsubst $(B)/proto/%,$(O)/pb/%.o,$(PB))
ALL_O := $(call obj,$(PROTO) $(DAEMON) $(UNIT) $(INTEGRATION) $(DEMO) $(BENCH) $(SOAK) $(GATEWAY) $(FUZZ) $(FUZZ_D) $(FAULT) tests/fuzz/corpus.c \
	tests/bench/floor/floor.c)

# These goals install what is missing first; plain `make` never touches the system.
NEED := $(if $(filter deps demo test faults run lint bench soak load fuzz vm conformance manifests,$(MAKECMDGOALS)),deps)

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' $(1) $(2))

.PHONY: all deps demo test faults run lint bench soak load fuzz fuzzers conformance nightly install clean objects FORCE
.DELETE_ON_ERROR:
.SUFFIXES:

all: $(B)/celld

# $(call stamp,TEXT): rewrite the target only when TEXT differs, so that other flags rebuild and the same do not.
stamp = @mkdir -p $(@D); echo '$(subst ','\'',$(1))' | cmp -s - $@ || echo '$(subst ','\'',$(1))' >$@
$(O)/flags: FORCE
	$(call stamp,$(CC) $(CPPFLAGS) $(WARN) $(BASE) $(CFLAGS) $(LLHTTP_DIR))
$(B)/link: FORCE
	$(call stamp,$(CC) $(BASE) $(CFLAGS) $(LDFLAGS))

$(ALL_O): $(O)/%.o: %.c $(O)/flags | $(NEED) $(addsuffix .h,$(PB))
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(WARN) $(BASE) $(CFLAGS) -MMD -MP -c -o $@ $<

# Somebody else's generated code: our defines, none of our warnings. (No prerequisite: `deps` may bring the sources.)
$(B)/proto/%.pb-c.c $(B)/proto/%.pb-c.h: proto/%.proto | $(NEED)
	$(call say,PB,$<)
	@mkdir -p $(@D)
	$(Q)protoc-c --proto_path=proto --c_out=$(@D) $<
$(PB_O): $(O)/pb/%.o: $(B)/proto/%.c $(O)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(BASE) $(CFLAGS) -w -c -o $@ $<
$(LLHTTP_O): $(O)/llhttp/%.o: $(O)/flags | $(NEED)
	$(call say,CC,$(LLHTTP_DIR)/$*.c)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(BASE) $(CFLAGS) -w -c -o $@ $(LLHTTP_DIR)/$*.c

# $(call link,OBJECTS,LIBRARIES AND FLAGS)
link = $(call say,LD,$@)$(newline)	$(Q)$(CC) $(BASE) $(CFLAGS) $(LDFLAGS) -o $@ $(1) $(2)
define newline


endef

# What an idle celld has run lies side by side (hot.ld): 1.05 MiB of the pair are resident instead of 1.85.
$(B)/celld: $(call obj,$(DAEMON) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link daemon/hot.ld
	$(call link,$(filter %.o,$^),$(LINK) $(if $(LINK),-Wl$(comma)-T$(comma)daemon/hot.ld) $(LIBS) -lm)
ifndef SAN
	@mv $@ $@.debug && $(STRIP) -o $@ $@.debug
	@echo "$@: static, $$(( ($$(stat -c %s $@) + 1023) / 1024 )) KiB stripped"
endif

# Unit tests link every module but main; the other programs see the product only over the wire, and proto to speak it.
$(B)/unit-tests: $(call obj,$(UNIT) $(filter-out daemon/main.c,$(DAEMON)) $(PROTO) $(GATEWAY_T) $(FUZZ) tests/fuzz/corpus.c) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(WRAP) $(LIBS_T))
# A local control plane: over proto and daemon/net, and core's look at process trees.
$(B)/celld-gateway: $(call obj,$(GATEWAY) $(wildcard daemon/net/*.c) daemon/io.c daemon/log.c daemon/core/tree.c $(PROTO)) \
		$(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(LIBS_T))
$(B)/integration-tests: $(call obj,$(INTEGRATION) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(LIBS_T))
$(B)/demo: $(call obj,$(DEMO) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(LIBS_T))
$(B)/bench: $(call obj,$(BENCH) $(PROTO) tests/demo/client.c tests/demo/sandbox.c) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(LIBS_T))
$(B)/bench-floor: $(call obj,tests/bench/floor/floor.c) $(B)/link
	$(call link,$(filter %.o,$^),$(LINK))
$(B)/soak: $(call obj,$(SOAK) $(PROTO) tests/demo/client.c tests/demo/sandbox.c) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,$(filter %.o,$^),$(LIBS_T))

# A sanitized build is several times slower: its time limits scale.
test faults bench soak load demo run conformance: export T_SCALE ?= $(if $(SAN),4,1)
test faults bench soak load demo run conformance: export ASAN_OPTIONS ?= detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
test faults bench soak load demo run conformance: export UBSAN_OPTIONS ?= print_stacktrace=1:halt_on_error=1
test: $(NEED) $(B)/celld $(B)/celld-faults $(B)/celld-gateway $(B)/unit-tests $(B)/fuzz-tests $(B)/integration-tests
	@CELLD=$(abspath $(B)/celld) CELLD_FAULTY=$(abspath $(B)/celld-faults) GATEWAY=$(abspath $(B)/celld-gateway) sh tests/run.sh \
		$(B)/unit-tests $(B)/fuzz-tests $(B)/integration-tests

demo: $(NEED) $(B)/celld $(B)/celld-gateway $(B)/demo
	@$(B)/demo $(abspath $(B)/celld) $(abspath $(B)/celld-gateway)

bench: $(NEED) $(B)/celld $(B)/bench $(B)/bench-floor
	@$(B)/bench $(if $(PEER),-p '$(PEER)') $(abspath $(B)/celld)

# The official SDKs, against the daemon and through the gateway.
conformance: $(NEED) $(B)/celld $(B)/celld-gateway
	@sh tests/sdk/run.sh $(B)/celld $(B)/celld-gateway $(B)

# All routes by CLIENTS for T seconds (SEED=N again, KILL_DAEMON=1), then nothing may be left; and how it bears crowds.
soak load: $(NEED) $(B)/celld $(B)/soak
	@$(B)/soak $(filter load,$@) $(abspath $(B)/celld)

# Stays up until interrupted; whoever reaches the port and has the key may run commands, so it is local unless RUN_ADDR says more.
run: $(NEED) $(B)/celld $(B)/celld-gateway
	@exec $(B)/celld-gateway --celld $(abspath $(B)/celld) --listen $(RUN_ADDR):$(RUN_PORT) $(RUN_ARGS)

include tests/fuzz/fuzz.mk tests/faults/faults.mk tests/vm/vm.mk tests/manifests/manifests.mk tests/dist/dist.mk systemd/systemd.mk tests/image/image.mk

objects: $(ALL_O) $(LLHTTP_O) $(PB_O)

lint: $(NEED)
	@sh tests/lint/run.sh
	@$(MAKE) --no-print-directory objects DEV=1 CC=gcc
	@$(MAKE) --no-print-directory objects DEV=1 CC=clang
	@echo "lint: clean"

# All that takes hours: .ci/nightly says what, and why.
nightly:
	@.ci/nightly

deps:
	@sh .ci/deps $(DEPS) $(if $(filter lint fuzz,$(MAKECMDGOALS)),$(DEPS_LINT)) \
		$(if $(filter fuzz,$(MAKECMDGOALS)),$(DEPS_FUZZ)) $(if $(filter conformance manifests,$(MAKECMDGOALS)),$(DEPS_SDK))

clean:
	rm -rf $(BUILD)

-include $(ALL_O:.o=.d)
