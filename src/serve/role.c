/* SPDX-License-Identifier: Apache-2.0 */
/* role.c: hands a node's questions to the rooms that know: what it may serve, and who sends writes to others.
 */
#include "serve/role.h"
#include "wire/pool_member.h"

static void carry_out(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                      struct pst_wire_result *result)
{
    const struct pst_pool_role *role = ctx;

    (void)now_ns;
    pst_member_figures(&role->counters, op, to, room, result);
}

static int may_serve(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_allows(role->serving, key);
}

static int may_answer(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_allows_answer(role->serving, key);
}

static bool tells(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_tells(role->serving, key);
}

static bool copied(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_has_replicas(role->serving, key);
}

static void replicate(void *ctx, struct pst_replica *replica)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies); /* who says that a partition has copies */
    pst_copies_replicate(role->copies, replica);
}

static void replicated(void *ctx, struct pst_replica *replica)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    pst_copies_replicated(role->copies, replica);
}

static int may_copy(void *ctx, uint32_t partition, uint64_t partition_epoch)
{
    struct pst_pool_role *role = ctx;

    return pst_serving_may_replicate(role->serving, partition, partition_epoch);
}

static bool stranded(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_stranded(role->serving, key);
}

static uint32_t partition_of(void *ctx, struct pst_bytes key)
{
    const struct pst_pool_role *role = ctx;

    return pst_serving_partition_of(role->serving, key);
}

struct pst_node_role pst_pool_role_table(struct pst_pool_role *role)
{
    pst_assert(role->serving);
    return (struct pst_node_role){.ctx = role,
                                  .carry_out = carry_out,
                                  .may_serve = may_serve,
                                  .may_answer = may_answer,
                                  .tells = tells,
                                  .copied = copied,
                                  .replicate = replicate,
                                  .replicated = replicated,
                                  .may_copy = may_copy,
                                  .stranded = stranded,
                                  .partition_of = partition_of};
}

/* ---- the member's sender ---- */

static int sender_open(void *ctx, const struct pst_channel_options *self, int changed_fd)
{
    struct pst_pool_role *role = ctx;
    struct pst_copies *copies = NULL;
    int r;

    pst_assert(!role->copies);
    r = pst_copies_open(&role->copying, self, role->serving, changed_fd, &copies);
    role->copies = copies;
    pst_assert(r < 0 || role->copies);
    return r;
}

static void sender_stop(void *ctx)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    pst_copies_stop(role->copies);
}

static int sender_map(void *ctx, const struct pst_map *map, uint16_t member, uint64_t epoch)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    return pst_copies_map(role->copies, map, member, epoch);
}

static void sender_wants(void *ctx, const struct pst_pool_want *wants, uint32_t count)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    pst_copies_wants(role->copies, wants, count);
}

static uint32_t sender_changes(void *ctx, struct pst_pool_copy changes[PST_POOL_COPIES_MAX])
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    return pst_copies_changes(role->copies, changes);
}

static bool sender_may_send(void *ctx, uint64_t bytes, uint64_t now_ns)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    return pst_copies_may_send(role->copies, bytes, now_ns);
}

static bool sender_idle(void *ctx)
{
    struct pst_pool_role *role = ctx;

    pst_assert(role->copies);
    return pst_copies_idle(role->copies);
}

/* ---- beginning and end ---- */

int pst_pool_role_open(const struct pst_copies_settings *copying, struct pst_pool_role **out)
{
    struct pst_pool_role *role = calloc(1, sizeof(*role));
    int r = role ? pst_serving_open(&role->serving) : -ENOMEM;

    if (r < 0) {
        free(role);
        return r;
    }
    role->copying = *copying;
    role->sender = (struct pst_member_sender){.ctx = role,
                                              .open = sender_open,
                                              .stop = sender_stop,
                                              .map = sender_map,
                                              .wants = sender_wants,
                                              .changes = sender_changes,
                                              .may_send = sender_may_send,
                                              .idle = sender_idle};
    pst_assert(role->serving);
    pst_assert(!role->copies);
    *out = role;
    return 0;
}

struct pst_pool_role *pst_pool_role_close(struct pst_pool_role *role)
{
    if (role) {
        pst_copies_close(role->copies);
        pst_serving_close(role->serving);
    }
    free(role);
    return NULL;
}
