// SPDX-License-Identifier: Apache-2.0
// Where a daemon died: written by the handler of a fatal signal, read by the init part.
#include "daemon/core/store_priv.h"

#include <unistd.h>

#define STACK_SIZE 32768

// A handler gets no argument, so these stand alone.
static struct store_fault *fault;
static unsigned char stack_memory[STACK_SIZE] __attribute__((aligned(64)));

static void on_fault(int sig, siginfo_t *si, void *context)
{
	(void)context;
	// By kill(2) there is no address, and no instruction that would fault again once this returns.
	bool sent = si->si_code <= 0;
	fault->pid = (int32_t)getpid();
	fault->address = sent ? 0 : (uint64_t)(uintptr_t)si->si_addr;
	store_set(&fault->sig, sent ? 0 : (uint32_t)sig);
	if (sent)
		raise(sig); // waits until this returns; its disposition is the default again
}

void store_catch_faults(struct store *s)
{
	static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	const stack_t stack = {.ss_sp = stack_memory, .ss_size = sizeof stack_memory};
	if (sigaltstack(&stack, NULL) < 0)
		return;
	fault = &s->head->fault;
	store_set(&fault->sig, 0);
	for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
		struct sigaction sa = {.sa_sigaction = on_fault}, old;
		sa.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
		// A sanitizer's own tells more.
		if (sigaction(fatal[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
			sigaction(fatal[i], &sa, NULL);
	}
}
