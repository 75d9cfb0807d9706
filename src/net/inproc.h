/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.h: the transport in memory, in test builds only: ports of one process, whose threads hand messages
 * to each other. PENSTOCK_NET=memory chooses it in place of UCX. It keeps the contracts of net.h and can be
 * told to be as bad as they allow: "memory:seed=7,drop=1000,dup=20000,reorder=50000,delay_us=300".
 *
 *   drop     messages of a million that never arrive; of bulk messages half lose their bytes instead, so that
 *            a receive that has begun does not end
 *   dup      messages of a million that arrive a second time
 *   reorder  messages of a million that others overtake
 *   delay_us at the most, for each message and each end of a transfer
 *   hold_us  for each end of a transfer, whatever delay_us says
 *
 * With one of the last two a peer's close takes a while, too.
 *
 * Which message is hit depends on the seed, on its direction between two ports and on its number there, so
 * the threads' timing does not change it.
 */
#ifndef PST_MEMORY_H
#define PST_MEMORY_H

#include "net/net.h"

/* Sets what happens to messages from now on, on all nets. Return: 0, -EINVAL. */
int pst_memory_chance(const char *text);

#endif
