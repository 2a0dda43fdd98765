// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/cells.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// Less what malloc keeps in front of it.
#define BLOCK ((size_t)16 * 1024 - 16)

struct cell {
	union {
		struct cells_block *block; // in use
		struct cell *next;         // put back
	};
	unsigned char object[];
};

struct cells_block {
	struct cells_block *prev, *next; // among the open ones
	struct cell *spare;
	size_t used, fresh; // behind that many nothing was touched yet
	unsigned char cells[];
};

void cells_init(struct cells *c, size_t size)
{
	*c = (struct cells){.size = (sizeof(struct cell) + size + 7) / 8 * 8};
	c->each = (BLOCK - sizeof(struct cells_block)) / c->size;
#ifdef __SANITIZE_ADDRESS__
	c->each = 1; // who uses one that was put back is found
#endif
	if (!c->each)
		c->each = 1;
}

static void drop(struct cells *c, struct cells_block *b)
{
	DL_DELETE(c->open, b);
	free(b);
}

void cells_release(struct cells *c)
{
	while (c->open) {
		assert(!c->open->used);
		drop(c, c->open);
	}
}

void *cells_get(struct cells *c)
{
	struct cells_block *b = c->open;
	if (!b) {
		b = malloc(sizeof *b + c->each * c->size);
		if (!b)
			return NULL;
		*b = (struct cells_block){0};
		DL_APPEND(c->open, b);
	}
	struct cell *cell = b->spare;
	if (cell)
		b->spare = cell->next;
	else
		cell = (struct cell *)(void *)(b->cells + b->fresh++ * c->size);
	cell->block = b;
	memset(cell->object, 0, c->size - sizeof *cell);
	if (++b->used == c->each)
		DL_DELETE(c->open, b);
	return cell->object;
}

void cells_put(struct cells *c, void *object)
{
	struct cell *cell = (struct cell *)(void *)((unsigned char *)object - offsetof(struct cell, object));
	struct cells_block *b = cell->block;
	if (b->used == c->each)
		DL_APPEND(c->open, b);
	cell->next = b->spare;
	b->spare = cell;
	// The only open one stays: the next start needs it.
	if (--b->used == 0 && (b->next || c->open != b || c->each == 1))
		drop(c, b);
}
