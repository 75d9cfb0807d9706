/* SPDX-License-Identifier: Apache-2.0 */
/* chain.c: the row of members, linked both ways through an array; an element's index is its rank. */
#include "files/chain/chain.h"

enum { ROOM_MIN = 16, SOURCE = 0 };

struct member {
    uint64_t id, heard_ms;
    uint32_t parent,
        child; /* in the row; of the source, whose row is a ring, the last member and the first */
    uint32_t pieces, reports;
    uint16_t port;
    bool linked, done, left, refused;
    char host[PST_CHAIN_HOST_BYTES_MAX + 1];
};

struct pst_chain {
    struct member *members; /* the source is the first */
    uint32_t count, room;   /* of them, the source too */
};

struct pst_chain *pst_chain_open(void)
{
    struct pst_chain *chain = calloc(1, sizeof(*chain));

    if (!chain)
        return NULL;
    chain->members = calloc(ROOM_MIN, sizeof(*chain->members));
    if (!chain->members)
        return pst_chain_close(chain);
    chain->room = ROOM_MIN;
    chain->count = 1;
    chain->members[SOURCE].linked = true;
    return chain;
}

struct pst_chain *pst_chain_close(struct pst_chain *chain)
{
    if (chain)
        free(chain->members);
    free(chain);
    return NULL;
}

/* ---- the row ---- */

static void chain_unlink(struct pst_chain *chain, uint32_t rank)
{
    struct member *member = &chain->members[rank];

    pst_assert(rank != SOURCE);
    pst_assert(member->linked);
    pst_assert(chain->members[member->parent].child == rank);
    pst_assert(chain->members[member->child].parent == rank);
    chain->members[member->parent].child = member->child;
    chain->members[member->child].parent = member->parent;
    member->linked = false;
}

/* At the end; but whoever has passed on wrong bytes stays behind those who have not. */
static void chain_link(struct pst_chain *chain, uint32_t rank)
{
    struct member *member = &chain->members[rank];
    uint32_t parent = chain->members[SOURCE].parent;

    pst_assert(rank != SOURCE);
    pst_assert(!member->linked);
    pst_assert(!member->left);
    while (!member->refused && chain->members[parent].refused)
        parent = chain->members[parent].parent;
    pst_assert(chain->members[parent].linked);
    pst_assert(chain->members[chain->members[parent].child].parent == parent);
    member->parent = parent;
    member->child = chain->members[parent].child;
    chain->members[member->child].parent = rank;
    chain->members[parent].child = rank;
    member->linked = true;
}

/* The member that calls; NULL: there is none. One that was taken out shows that it lives. */
static struct member *chain_caller(struct pst_chain *chain, uint32_t rank, uint64_t id, uint64_t now_ms)
{
    struct member *member = rank != SOURCE && rank < chain->count ? &chain->members[rank] : NULL;

    if (!member || member->id != id || member->left)
        return NULL;
    member->heard_ms = now_ms;
    if (!member->linked)
        chain_link(chain, rank);
    return member;
}

/* ---- calls ---- */

static int chain_grow(struct pst_chain *chain)
{
    struct member *grown;

    pst_assert(chain->count >= 1 && chain->count <= chain->room);
    if (chain->count > PST_CHAIN_MEMBERS_MAX)
        return -ENOSPC;
    if (chain->count < chain->room)
        return 0;
    grown = realloc(chain->members, 2 * chain->room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    chain->members = grown;
    chain->room *= 2;
    return 0;
}

/* Return: SOURCE there is no such member that has not left. */
static uint32_t chain_find(const struct pst_chain *chain, uint64_t id)
{
    for (uint32_t rank = 1; rank < chain->count; rank++) {
        if (chain->members[rank].id == id && !chain->members[rank].left)
            return rank;
    }
    return SOURCE;
}

int pst_chain_join(struct pst_chain *chain, uint64_t id, const struct pst_chain_address *address,
                   uint64_t now_ms, uint32_t *rank)
{
    size_t bytes = strnlen(address->host, PST_CHAIN_HOST_BYTES_MAX + 1);
    uint32_t found = chain_find(chain, id);
    struct member *member;
    int r;

    if (bytes == 0 || bytes > PST_CHAIN_HOST_BYTES_MAX || address->port == 0)
        return -EINVAL;
    if (found == SOURCE) {
        r = chain_grow(chain);
        if (r < 0)
            return r;
        found = chain->count++;
        chain->members[found] = (struct member){.id = id};
    }
    member = &chain->members[found];
    memcpy(member->host, address->host, bytes + 1);
    member->port = address->port;
    pst_assert(chain_caller(chain, found, id, now_ms) == member);
    *rank = found;
    return 0;
}

int pst_chain_progress(struct pst_chain *chain, uint32_t rank, uint64_t id, uint32_t pieces, bool done,
                       uint64_t now_ms)
{
    struct member *member = chain_caller(chain, rank, id, now_ms);

    if (!member)
        return -ENOENT;
    member->pieces = pieces;
    member->done |= done;
    return 0;
}

int pst_chain_report(struct pst_chain *chain, uint32_t rank, uint64_t id, uint32_t parent_rank,
                     enum pst_chain_fault fault, uint64_t now_ms)
{
    bool stood = rank < chain->count && chain->members[rank].linked;
    struct member *member = chain_caller(chain, rank, id, now_ms), *parent;

    if (!member)
        return -ENOENT;
    /* One that was taken out meanwhile has lost its parent because of that. */
    if (!stood || member->parent != parent_rank)
        return 0;
    if (parent_rank == SOURCE)
        return PST_CHAIN_IS_SOURCE;
    parent = &chain->members[parent_rank];
    pst_assert(parent->linked);
    pst_assert(parent->child == rank);
    parent->reports++;
    parent->refused |= fault == PST_CHAIN_WRONG_BYTES;
    chain_unlink(chain, parent_rank);
    return 0;
}

int pst_chain_leave(struct pst_chain *chain, uint32_t rank, uint64_t id)
{
    struct member *member = rank != SOURCE && rank < chain->count ? &chain->members[rank] : NULL;

    if (!member || member->id != id || member->left)
        return -ENOENT;
    if (member->linked)
        chain_unlink(chain, rank);
    member->left = true;
    return 0;
}

bool pst_chain_is_over(const struct pst_chain *chain, uint64_t now_ms)
{
    for (uint32_t rank = 1; rank < chain->count; rank++) {
        const struct member *member = &chain->members[rank];

        /* One that is out of the row may come back with its next call. */
        if (!member->left && now_ms < member->heard_ms + PST_CHAIN_GONE_MS)
            return false;
    }
    return true;
}

void pst_chain_place(const struct pst_chain *chain, uint32_t rank, struct pst_chain_place *out)
{
    const struct member *member = &chain->members[rank], *parent;

    pst_assert(rank != SOURCE);
    pst_assert(rank < chain->count);
    pst_assert(member->linked);
    parent = &chain->members[member->parent];
    pst_assert(member->refused || !parent->refused); /* wrong bytes are passed on to nobody who has none */
    *out = (struct pst_chain_place){
        .parent_rank = member->parent,
        .may_leave = member->done && (member->child == SOURCE || chain->members[member->child].done)};
    if (member->parent != SOURCE)
        out->parent = (struct pst_chain_address){parent->host, parent->port};
}

/* ---- for people ---- */

static enum pst_chain_state chain_state(const struct member *member)
{
    pst_assert(!member->left || !member->linked);
    return member->left     ? PST_CHAIN_LEFT
           : member->done   ? PST_CHAIN_DONE
           : member->linked ? PST_CHAIN_FETCHES
                            : PST_CHAIN_OUT;
}

void pst_chain_list(const struct pst_chain *chain, pst_chain_each *each, void *arg)
{
    for (uint32_t rank = 1; rank < chain->count; rank++) {
        const struct member *member = &chain->members[rank];
        const struct pst_chain_member told = {.rank = rank,
                                              .parent_rank = member->parent,
                                              .pieces = member->pieces,
                                              .state = chain_state(member),
                                              .address = {member->host, member->port},
                                              .reports = member->reports,
                                              .refused = member->refused,
                                              .heard_ms = member->heard_ms};

        each(arg, &told);
    }
}

uint32_t pst_chain_count(const struct pst_chain *chain)
{
    pst_assert(chain->count >= 1);
    pst_assert(chain->members[SOURCE].linked);
    return chain->count - 1;
}
