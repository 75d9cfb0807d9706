/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap.h: allocations and system calls of penstock's own objects, one of which fails. The linker sends them
 * here (--wrap), so what libraries do by themselves is not counted: UCX ends the process when its own memory
 * runs out.
 */
#ifndef SOAK_NTH_CALL_WRAP_H
#define SOAK_NTH_CALL_WRAP_H

#include <stdbool.h>
#include <stddef.h>

enum fail_mode {
    FAIL_HARD,        /* no memory, no descriptor, no space, no connection */
    FAIL_INTERRUPTED, /* EINTR, of calls that may be interrupted; the others are not counted */
};

/* The @nth call from now on fails, 1 is the first; 0: none, they are counted only. */
void fail_arm(enum fail_mode mode, unsigned nth);
/* Return: whether a call was made to fail. */
bool fail_disarm(void);
/* The name of the call that failed last, "" for none. */
const char *fail_name(void);
/* Blocks of memory that penstock's objects hold. */
size_t fail_blocks(void);
/* Loses one block and one descriptor with every call that fails from now on: the soak must find it. */
void fail_plant(void);

#endif
