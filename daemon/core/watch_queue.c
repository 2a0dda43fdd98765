// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/watch_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// What an event costs beside its name.
#define ITEM_BYTES sizeof(struct watch_item)

static void append(struct watcher *w, struct watch_item *i)
{
	bool first = !w->items;
	DL_APPEND(w->items, i);
	i->queued = true;
	w->waiting++;
	if (first && w->ready && w->spec.changed && !w->closed)
		w->spec.changed(w->spec.arg);
}

// The marker stands where the last loss was, so that whoever has read it knows of every loss before it.
void watch_lost(struct watcher *w)
{
	if (w->gone || w->closed)
		return;
	if (w->lost->queued) { // of a loss that its reader has not heard of yet
		DL_DELETE(w->items, w->lost);
		DL_APPEND(w->items, w->lost);
		return;
	}
	if (w->ws->metrics)
		w->ws->metrics->watch_lost++;
	append(w, w->lost);
}

void watch_end(struct watcher *w, enum watch_type type)
{
	if (w->end->queued)
		return;
	w->end->e.type = type;
	w->end->e.path = w->path;
	w->end->e.path_len = strlen(w->path);
	append(w, w->end);
}

static bool fits(const struct watcher *w, size_t n)
{
	const struct watch_limits *l = &w->ws->limits;
	return w->count < l->max_events && n <= l->max_bytes && w->bytes <= l->max_bytes - n &&
	       w->ws->bytes <= l->max_total - n;
}

// Writes that nobody has read yet are one.
static bool repeats(const struct watcher *w, const struct watch_item *i)
{
	if (!w->items || i->e.type != WATCH_WRITE)
		return false;
	const struct watch_event *last = &w->items->prev->e;
	return last->type == WATCH_WRITE && last->path_len == i->e.path_len &&
	       memcmp(last->path, i->e.path, i->e.path_len) == 0;
}

// The whole path of LEAF in N. NULL: out of memory, or no room in the queue.
static struct watch_item *item_new(struct watch_node *n, const char *leaf, enum watch_type type)
{
	struct watcher *w = n->w;
	size_t below = watch_node_len(n, leaf);
	size_t root = strlen(w->path);
	bool slash = below > 0 && w->path[root - 1] != '/';
	size_t len = root + slash + below;
	struct watch_item *i = fits(w, len + ITEM_BYTES) ? malloc(sizeof *i + len + 1) : NULL;
	if (!i)
		return NULL;
	memcpy(i->text, w->path, root);
	i->text[root] = '/';
	i->text[len] = '\0';
	watch_node_name(n, leaf, i->text + len);
	i->e = (struct watch_event){.type = type, .path = i->text, .path_len = len, .name = i->text + root + slash};
	return i;
}

void watch_push(struct watch_node *n, const char *leaf, enum watch_type type)
{
	struct watcher *w = n->w;
	if (w->gone || w->closed)
		return;
	struct watch_item *i = item_new(n, leaf, type);
	if (!i) {
		watch_lost(w);
		return;
	}
	if (repeats(w, i)) {
		free(i);
		return;
	}
	w->count++;
	w->bytes += i->e.path_len + ITEM_BYTES;
	w->ws->bytes += i->e.path_len + ITEM_BYTES;
	append(w, i);
}

const struct watch_event *watcher_next(const struct watcher *w)
{
	return w->items ? &w->items->e : NULL;
}

void watcher_taken(struct watcher *w)
{
	struct watch_item *i = w->items;
	DL_DELETE(w->items, i);
	i->queued = false;
	w->waiting--;
	if (i == w->lost || i == w->end) {
		if (i == w->end)
			i->queued = true; // it comes once
		return;
	}
	w->count--;
	w->bytes -= i->e.path_len + ITEM_BYTES;
	w->ws->bytes -= i->e.path_len + ITEM_BYTES;
	free(i);
}

static struct watch_item *marker(void)
{
	struct watch_item *i = calloc(1, sizeof *i + 1);
	if (i)
		i->e.path = i->e.name = i->text;
	return i;
}

int watch_queue_init(struct watcher *w)
{
	w->lost = marker();
	w->end = marker();
	if (!w->lost || !w->end)
		return -ENOMEM;
	w->end->e.end = true;
	return 0;
}

void watch_queue_release(struct watcher *w)
{
	while (w->items)
		watcher_taken(w);
	free(w->lost);
	free(w->end);
}

size_t watcher_count(const struct watcher *w)
{
	return w->waiting;
}

bool watcher_ended(const struct watcher *w)
{
	return w->gone && !w->items;
}
