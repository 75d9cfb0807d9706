/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged_priv.h: values in device memory of the caller's, which it has registered. Their bytes take the way
 * over a buffer of this library, in parts; ops.c and store.c include it. Any thread.
 */
#ifndef PST_CLIENT_API_STAGED_PRIV_H
#define PST_CLIENT_API_STAGED_PRIV_H

#include "client/client_priv.h"

/* Return: 0 it is a device's, and known from now on; -ENOENT it is the host's; -ENOSPC, -ERANGE, -errno. */
int pst_staged_add(struct penstock *store, void *addr, size_t bytes);
/* Return: 0, -ENOENT. */
int pst_staged_drop(struct penstock *store, const void *addr);
void pst_staged_fini(struct penstock *store);

/* Whether an operation of the caller's has its value there. */
bool pst_op_staged(struct penstock *store, const struct penstock_op *op);
/* Does all of them, one after the other, if one of them is such. Return: false: none is, and nothing is done.
 */
bool pst_staged_run(struct penstock *store, struct penstock_op *ops, size_t count);

#endif
