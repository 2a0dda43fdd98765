// SPDX-License-Identifier: Apache-2.0
// cells: objects of one size, side by side in blocks of their own. For what is kept long after all that was made with it is gone: in between it would
// hold the pages of that. A block without objects is given back. Embedded in its owner.
#ifndef CELLD_CORE_CELLS_H
#define CELLD_CORE_CELLS_H

#include <stddef.h>

struct cells_block;

struct cells {
	size_t size;              // of one with its head
	size_t each;              // in one block
	struct cells_block *open; // with room
};

// For objects of SIZE bytes, with the alignment of pointers.
void cells_init(struct cells *c, size_t size);
// Every object was put back.
void cells_release(struct cells *c);
// All zero. NULL when out of memory.
void *cells_get(struct cells *c);
void cells_put(struct cells *c, void *object);

#endif
