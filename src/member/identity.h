/* SPDX-License-Identifier: Apache-2.0 */
/*
 * identity.h: who a node is in its pool, over restarts: an id, and which membership of it the node's memory
 * and SSD go back to. In a file of the operator's, or for as long as the process lives. One thread.
 *
 *     0123456789abcdef0123456789abcdef
 *     epoch 00000000000000000007 memory 89abcdef01234567
 *     epoch 00000000000000000007 disk 0f1e2d3c4b5a6978
 *
 * The last two lines are written with each membership. A node that begins anew with the same memory has lost
 * nothing that it acknowledged in that one, and with the same disk nothing that was durable; with others a
 * line is about somebody else.
 *
 * Whose values the node has it notes beside them, in a file of its own, which counts as long as the memory or
 * the disk is the same:
 *
 *     pool fedcba9876543210fedcba9876543210 memory 89abcdef01234567 disk 0f1e2d3c4b5a6978
 */
#ifndef PST_IDENTITY_H
#define PST_IDENTITY_H

#include "base/options.h"
#include "pool/map.h"
#include "wire/pool.h"

struct pst_identity {
    uint8_t id[PST_POOL_ID_BYTES];
    uint64_t epoch; /* of the last membership whose values the node has; 0: none */
    bool durable;   /* those that were durable, that is */
    uint64_t memory, disk;
    int fd;             /* -1: no file */
    struct pst_id pool; /* whose values the node has; zeros: nobody's */
    int pool_fd;        /* -1: they end with the process */
};

/*
 * @text: digits, the name of a file with them, which gets new ones if it is not there, or NULL for new ones.
 * @beside: the file that notes the pool; NULL: none. @memory, @disk: name the node's memory and SSD; 0: it
 * ends with the process, there is none. Return: 0 or -errno with the reason in @fault.
 */
int pst_identity_init(struct pst_identity *self, const char *text, const char *beside, uint64_t memory,
                      uint64_t disk, char fault[PST_FAULT_BYTES]);
void pst_identity_fini(struct pst_identity *self);
/* Whether another process may come back as this member, with what this one leaves. */
bool pst_identity_outlives(const struct pst_identity *self);
/* The node is a member of that pool now. Return: 0 or -errno: a file says what it said before, or nothing. */
int pst_identity_note(struct pst_identity *self, uint64_t epoch, const struct pst_id *pool);

#endif
