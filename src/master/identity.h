/*
 * identity.h: who a node is in its pool, over restarts: an id, and which membership of it the node's memory
 * goes back to. In a file of the operator's, or for as long as the process lives. One thread.
 *
 *     0123456789abcdef0123456789abcdef
 *     epoch 00000000000000000007 memory 89abcdef01234567
 *
 * The second line is written with each membership. A node that begins anew with the same memory has lost
 * nothing that it acknowledged in that one; with other memory the line is about somebody else.
 */
#ifndef PST_IDENTITY_H
#define PST_IDENTITY_H

#include "base/options.h"
#include "wire/pool.h"

struct pst_identity {
    uint8_t id[PST_POOL_ID_BYTES];
    uint64_t epoch; /* of the last membership whose values the memory has; 0: none */
    uint64_t memory;
    int fd; /* -1: no file */
};

/*
 * @text: digits, the name of a file with them, which gets new ones if it is not there, or NULL for new ones.
 * @memory: names the node's memory; 0: it ends with the process. Return: 0 or -errno with the reason in
 * @fault.
 */
int pst_identity_init(struct pst_identity *self, const char *text, uint64_t memory,
                      char fault[PST_FAULT_BYTES]);
void pst_identity_fini(struct pst_identity *self);
/* The node is a member now. Return: 0 or -errno: the file says what it said before, or nothing. */
int pst_identity_note(struct pst_identity *self, uint64_t epoch);

#endif
