# SPDX-License-Identifier: Apache-2.0
# `make install` (DESTDIR, PREFIX): binary, manual page, shell completions, units. `make systemd-test`: what it installs, and what systemd thinks of the units;
# `make systemd-boot`: the units under a systemd that has booted in a namespace of its own (root).
UNITS := systemd/celld.service systemd/celld.socket systemd/celld-envd.socket
UNITDIR ?= $(PREFIX)/lib/systemd/system
MANDIR ?= $(PREFIX)/share/man

BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions

.PHONY: install systemd-test systemd-boot
install: $(B)/celld
	install -D -m 755 $(B)/celld $(DESTDIR)$(PREFIX)/bin/celld
	install -D -m 644 daemon/celld.8 $(DESTDIR)$(MANDIR)/man8/celld.8
	install -d -m 755 $(DESTDIR)$(UNITDIR) $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR)
	$(B)/celld ctl completion bash >$(DESTDIR)$(BASHDIR)/celld && chmod 644 $(DESTDIR)$(BASHDIR)/celld
	$(B)/celld ctl completion zsh >$(DESTDIR)$(ZSHDIR)/_celld && chmod 644 $(DESTDIR)$(ZSHDIR)/_celld
	for unit in $(UNITS); do \
		sed 's,/usr/local/bin/celld,$(PREFIX)/bin/celld,' "$$unit" >"$(DESTDIR)$(UNITDIR)/$${unit##*/}" && \
			chmod 644 "$(DESTDIR)$(UNITDIR)/$${unit##*/}" || exit 1; \
	done

systemd-test: $(B)/celld
	+@MAKE='$(MAKE) BUILD=$(BUILD)' sh tests/systemd/units.sh
systemd-boot: $(B)/celld
	+@MAKE='$(MAKE) BUILD=$(BUILD)' sh tests/systemd/boot.sh
