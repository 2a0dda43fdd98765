# SPDX-License-Identifier: Apache-2.0
# The fuzzers: one program a target with libFuzzer (`make fuzz`), and the daemon's targets with gcc too, over their corpora (`make test`).

# What stands in for the system under a whole daemon (tests/fuzz/daemon/fake.h): libev asks for the time too, so it is linked as an archive.
FUZZ_FAKED := io_read io_send io_pending io_close shutdown clock_gettime getrandom inotify_init1 inotify_add_watch spawn_run waitid \
	kill tree_stat tree_each tree_signal tree_signal_all tree_session tree_sweep tree_group_in pty_open pty_resize pty_foreground
FUZZ_WRAP := $(addprefix -Wl$(comma)--wrap=,$(FUZZ_FAKED))
FUZZ_D_O := $(call obj,$(filter-out %/replay.c,$(FUZZ_D)) $(filter-out daemon/main.c,$(DAEMON)) $(PROTO)) $(LLHTTP_O) $(PB_O)

FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,$(B)/fuzz-%,$(FUZZ))
FUZZERS_D := $(patsubst tests/fuzz/daemon/fuzz_%.c,$(B)/fuzz-%,$(filter tests/fuzz/daemon/fuzz_%,$(FUZZ_D)))

# Every target for T seconds; what it finds new stays in the build directory.
T ?= 60
fuzz: $(NEED)
	@$(MAKE) --no-print-directory fuzzers CC=clang SAN=fuzzer-no-link,address,undefined BUILD=$(BUILD)
	@sh tests/fuzz/run.sh $(BUILD)/san-fuzzer-no-link-address-undefined $(T)
fuzzers: $(FUZZERS) $(FUZZERS_D)
$(FUZZERS): $(B)/fuzz-%: tests/fuzz/driver.c $(call obj,$(FUZZ) $(PROTO)) $(LLHTTP_O) $(PB_O) $(B)/link
	$(call link,-DFUZZ=$* -I. -fsanitize=fuzzer $(filter %.c %.o,$^),$(LIBS) -lm)
$(FUZZERS_D): $(B)/fuzz-%: tests/fuzz/driver.c $(FUZZ_D_O) $(B)/link tests/fuzz/fuzz.mk
	$(call link,-DFUZZ=$* -I. -fsanitize=fuzzer $(filter %.c %.o,$^),$(FUZZ_WRAP) -Wl$(comma)-Bstatic $(LIBS) -Wl$(comma)-Bdynamic -lm)

$(B)/fuzz-tests: $(call obj,tests/fuzz/daemon/replay.c tests/fuzz/corpus.c) $(FUZZ_D_O) $(B)/link tests/fuzz/fuzz.mk
	$(call link,$(filter %.o,$^),$(FUZZ_WRAP) $(LIBS_T))
