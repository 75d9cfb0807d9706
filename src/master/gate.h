/*
 * gate.h: which keys a node of a pool may serve at this moment, by the view that it has and the lease that it
 * was granted (directory/lease.h): all of those that may lie anywhere, and of those with a home the ones
 * whose primary it is. The member's thread tells; the shards' threads ask, without a lock.
 *
 * Closed until there is a view: a node that begins anew does not know what was moved away from it.
 */
#ifndef PST_GATE_H
#define PST_GATE_H

#include "directory/view.h"

struct pst_gate;
struct pst_wire_op;
struct pst_wire_result;

/* What the member's attempts came to. */
#define PST_GATE_COUNTERS(X)                                                                                 \
    X(joins, "times that a master took the node in")                                                         \
    X(joins_refused, "times that one would not, or was none")                                                \
    X(masters_unreached, "times that none was reached, or would talk to the node")

enum pst_gate_counter {
#define X(name, text) PST_GATE_##name,
    PST_GATE_COUNTERS(X)
#undef X
        PST_GATE_COUNTER_COUNT
};

/* Return: 0 or -ENOMEM. */
int pst_gate_open(struct pst_gate **out);
/* Nobody asks any more. Returns NULL. */
struct pst_gate *pst_gate_close(struct pst_gate *gate);

/*
 * A node's role (node.h); @ctx is the gate. Return: 0, or what an operation on the key is answered: busy (no
 * lease, or no view), -ESTALE another member is the key's primary, PST_POOL_NO_PRIMARY.
 */
int pst_gate_may_serve(void *ctx, struct pst_bytes key);

/* Also of the role: the key's slot in the pool, PST_SLOTS it has no home; whether others hold its value, too;
 * whether the primary of the slot's epoch may change values here: busy until this node has heard of it,
 * -ESTALE it has been succeeded. Epoch 0: whether the key is one that may lie anywhere. */
uint32_t pst_gate_slot_of(void *ctx, struct pst_bytes key);
/* Copies that the view wants of a key. */
uint32_t pst_gate_replicas(const struct pst_gate *gate, struct pst_bytes key);
bool pst_gate_copied(void *ctx, struct pst_bytes key);
int pst_gate_may_copy(void *ctx, uint32_t slot, uint64_t slot_epoch);
/* The last slot epoch in which another node was let change values here; 0: none has. */
uint64_t pst_gate_filled(const struct pst_gate *gate, uint32_t slot);
/* Whether the key has a home, which is elsewhere, with all copies that there are or are made. */
bool pst_gate_stranded(void *ctx, struct pst_bytes key);
/* Whether the slot is, as far as shards have heard. */
bool pst_gate_elsewhere(const struct pst_gate *gate, uint32_t slot);

struct pst_copies;
struct pst_replica;

/* Who sends writes to copies; and the role's part in it. */
void pst_gate_copies(struct pst_gate *gate, struct pst_copies *copies);
void pst_gate_replicate(void *ctx, struct pst_replica *replica);
void pst_gate_replicated(void *ctx, struct pst_replica *replica);
/* A slot is not served, although it is this node's. */
void pst_gate_hold(struct pst_gate *gate, uint32_t slot, bool held);
bool pst_gate_held(const struct pst_gate *gate, uint32_t slot);
/* Its writes go to others first. */
void pst_gate_copy(struct pst_gate *gate, uint32_t slot, bool copied);
/* Somebody has a newer view, since this was asked last; @fd is written to when that happens, -1: none. */
bool pst_gate_behind(struct pst_gate *gate);
void pst_gate_wakes(struct pst_gate *gate, int fd);

void pst_gate_count(struct pst_gate *gate, enum pst_gate_counter counter);
/* The role's carry_out(): tells the counters to whom asks for a pool's figures, and does nothing else. */
void pst_gate_carry_out(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                        struct pst_wire_result *result);

/* How often the placement of keys has been another one than before. The thread that tells of views. */
uint32_t pst_gate_placements(const struct pst_gate *gate);
/* The node has this view, as that member. Return: 0 or -ENOMEM: nothing has changed. */
int pst_gate_view(struct pst_gate *gate, const struct pst_view *view, uint16_t member, uint64_t epoch);
/* The lease holds until then, of CLOCK_BOOTTIME; 0: there is none. Behind the view that it needs. */
void pst_gate_lease(struct pst_gate *gate, uint64_t until_ns);

#endif
