#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# inside.sh: a service of the systemd that boot.sh boots: what the units do there. What it finds goes to /test/result, "end ok" last.
set -u

result=/test/result
export CELLD_TOKEN=secret-of-the-test CELLD_URL=http://127.0.0.1:2024 PATH=/usr/local/bin:/usr/sbin:/usr/bin
ok() { echo "systemd: $*" >>"$result"; }
fail() {
	{
		echo "systemd: FAILED: $*"
		systemctl status --no-pager --full celld.service celld.socket
		journalctl --no-pager -n 40 -u celld.service
		echo "end failed"
	} >>"$result" 2>&1
	exit 1
}
is() { # is PROPERTY VALUE
	got=$(systemctl show -P "$1" celld.service)
	[ "$got" = "$2" ] || fail "$1 is \"$got\", not \"$2\"${3+ ($3)}"
}
until_true() { # until_true WHAT COMMAND...: within 15 s
	what=$1
	shift
	i=0
	until "$@" >/dev/null 2>&1; do
		i=$((i + 1))
		[ $i -lt 150 ] || fail "$what does not come about"
		sleep 0.1
	done
}
main() { systemctl show -P MainPID celld.service; }
daemon() { cat "/proc/$(main)/task/$(main)/children" | tr -d ' '; }
other_daemon() { [ -n "$(daemon)" ] && [ "$(daemon)" != "$1" ]; }
restarts_are() { [ "$(systemctl show -P NRestarts celld.service)" = "$1" ]; }

# --- without a token ---
systemctl start celld.service 2>/dev/null && fail "it starts without a token"
names_token() { journalctl --sync; journalctl --no-pager -u celld.service | grep -q '/etc/celld/token": No such file'; }
until_true "a word that there is no token" names_token # the journal may be turning over
systemctl stop celld.service
systemctl reset-failed celld.service
ok "without a token it does not start, and says why"

# --- socket activation, READY ---
echo "$CELLD_TOKEN" >/etc/celld/token
systemctl start celld.socket celld-envd.socket || fail "the sockets do not start"
is ActiveState inactive
celld ctl ready -q || fail "it is not ready by socket activation"
is ActiveState active
is StatusText "$(systemctl show -P StatusText celld.service | grep '^celld .* ready: sandboxd \[::\]:2024, envd \[::\]:49983$')"
[ "$(cat "/proc/$(main)/comm")" = celld ] && [ -n "$(daemon)" ] || fail "the init part is not the main process"
ok "the first client starts it; READY and STATUS have come"

# --- commands ---
out=$(celld ctl exec -- sh -c 'env; exit 7')
[ $? = 7 ] || fail "the exit status is not the command's"
echo "$out" | grep -qE '^(NOTIFY_|WATCHDOG_|LISTEN_|CELLD_)' && fail "a command has $out"
celld ctl exec -- sh -c 'exec sleep 1000' &
until_true "a command" sh -c 'celld ctl ps | grep -q "sleep 1000"'
cat /sys/fs/cgroup"$(systemctl show -P ControlGroup celld.service)"/cgroup.procs >/test/procs || fail "it has no group"
ok "commands run, and have nothing of the manager's in their environment"

# --- a crash, an upgrade, a new token ---
old=$(daemon)
kill -SEGV "$old"
until_true "another daemon" other_daemon "$old"
celld ctl ready -q --wait 5s || fail "it does not serve after a crash"
is ActiveState active
is NRestarts 0 "the unit is not started again for a crash of the daemon"
celld ctl ps | grep -q 'sleep 1000' || fail "a crash has ended a command"
until_true "its word" sh -c 'systemctl show -P StatusText celld.service | grep -q "serving again"'
old=$(daemon)
systemctl kill --kill-whom=main --signal=USR2 celld.service
until_true "a new binary" other_daemon "$old"
celld ctl ready -q --wait 5s || fail "it does not serve after an upgrade"
until_true "the end of the upgrade" systemctl -q is-active celld.service
celld ctl ps | grep -q 'sleep 1000' || fail "an upgrade has ended a command"
echo another-token >/etc/celld/token
systemctl reload celld.service || fail "reload"
until_true "the new token" env CELLD_TOKEN=another-token celld ctl ps
celld ctl ps >/dev/null 2>&1 && fail "the old token still opens"
export CELLD_TOKEN=another-token
until_true "the end of the reload" systemctl -q is-active celld.service
ok "a crash, an upgrade and a reload leave commands and unit running"

# --- the end ---
sleeper=$(celld ctl ps | sed -n 's/^ *\([0-9]*\) .*sleep 1000.*/\1/p')
[ -n "$sleeper" ] || fail "ps does not show the command"
systemctl stop celld.service || fail "stop"
is Result success
is ExecMainStatus 0
kill -0 "$sleeper" 2>/dev/null && fail "a command has outlived the unit"
[ "$(systemctl is-active celld.socket)" = active ] || fail "the socket is gone"
ok "stop ends it in order; the sockets stay"

# --- the watchdog, and groups of its own ---
mkdir -p /etc/systemd/system/celld.service.d
cat >/etc/systemd/system/celld.service.d/test.conf <<'CONF'
[Service]
WatchdogSec=2s
TimeoutAbortSec=2s
Environment=CELLD_CGROUP=on
CONF
systemctl daemon-reload
celld ctl ready -q || fail "it does not start a second time"
celld ctl exec -- sh -c 'grep -q "^0::.*celld.service/." /proc/self/cgroup' || fail "a command has no group of its own: $(celld ctl exec -- cat /proc/self/cgroup)"
sleep 5
is NRestarts 0 "a daemon that beats is left alone"
kill -STOP "$(daemon)"
until_true "a restart by the watchdog" restarts_are 1
celld ctl ready -q --wait 10s || fail "it does not serve after the watchdog"
is NRestarts 1
systemctl stop celld.service celld.socket celld-envd.socket || fail "stop"
ok "a hung daemon is noticed, and the unit starts again; --cgroup on has its groups below the unit"
echo "end ok" >>"$result"
