/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h: a directory in several shares, each with a process of its own, for master/. By default there is
 * one. A key's share is pst_map_share_of(); nodes report each key to its share's process, and clients ask
 * that. The leading master has the first share, and the pool map; whoever has another follows that pool map.
 */
#ifndef PST_DIRECTORY_SHARE_H
#define PST_DIRECTORY_SHARE_H

#include "directory/directory.h"

/*
 * A process has that share and says so, every heartbeat_ms: @start is drawn by it, @address is where nodes
 * and clients reach it. Return: 0 (@version: answer then), -EINVAL there is no such share to take, -EEXIST
 * another process has it and was heard of lately.
 */
int pst_directory_take_share(struct pst_directory *d, uint32_t number, uint64_t start, const char *address,
                             uint64_t now_ns, uint64_t *version);

/*
 * A directory that has that share of the keys, and follows @map, of settings->members_max members. It knows
 * nothing of any key; @start is as above. Return: 0 or -ENOMEM.
 */
int pst_directory_open_share(const struct pst_directory_settings *settings, const struct pst_map *map,
                             uint32_t number, uint64_t start, uint64_t now_ns, struct pst_directory **out);
/* The leading master has another pool map. Return: 0, -ESTALE it is none that comes behind the last: begin
 * anew with it. */
int pst_directory_follow(struct pst_directory *d, const struct pst_map *map, uint64_t now_ns);

/* Whether all of the keys fall to this directory; of others it knows nothing. */
bool pst_directory_has_share_of(const struct pst_directory *d, const struct pst_hash128 *keys,
                                uint32_t count);

#endif
