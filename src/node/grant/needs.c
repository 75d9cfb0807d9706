/* SPDX-License-Identifier: Apache-2.0 */
/*
 * needs.c: which right each operation needs, and what it names. A code of wire/codes.h without a row here
 * does not compile; one of a role that has none is the operator's alone.
 */
#include "node/grant.h"

#include "wire/pool.h"

enum names {
    NAMES_NOTHING,
    NAMES_KEY,
    NAMES_RANGE,  /* from the key on, to the attributes */
    NAMES_PREFIX, /* the key is one */
    NAMES_ALL,    /* nothing that prefixes could tell apart */
};

struct need {
    uint8_t right;
    uint8_t names;
};

#define ANYONE        PST_RIGHT_NONE, NAMES_NOTHING
#define READ(names)   PST_RIGHT_READ, NAMES_##names
#define WRITE(names)  PST_RIGHT_WRITE, NAMES_##names
#define ADMIN         PST_RIGHT_ADMIN, NAMES_NOTHING
#define NEED_PUT      WRITE(KEY)
#define NEED_GET      READ(KEY)
#define NEED_STAT_KEY READ(KEY)
#define NEED_DELETE   WRITE(KEY)
#define NEED_PIN      WRITE(KEY)
#define NEED_UNPIN    WRITE(KEY)
#define NEED_CHECK    READ(KEY)
#define NEED_RESERVE  WRITE(KEY)
/* The handle is of the session's own reservations; the commit compares the key with the reservation's. */
#define NEED_WRITE_AT           WRITE(KEY)
#define NEED_RESERVATION_COMMIT WRITE(KEY)
#define NEED_RESERVATION_ABORT  ANYONE
#define NEED_LIST               READ(RANGE)
#define NEED_SWEEP              WRITE(RANGE)
#define NEED_STAT               READ(NOTHING)
#define NEED_PING               ANYONE
#define NEED_VIEW               READ(KEY)
#define NEED_RELEASE            ANYONE
#define NEED_COMMIT             ANYONE /* its operations need theirs */
#define NEED_FLUSH              WRITE(NOTHING)
#define NEED_COPY               ADMIN
#define NEED_COPY_SEND          ADMIN
#define NEED_COPY_CLEAR         ADMIN
#define NEED_WATCH_OPEN         READ(PREFIX)
#define NEED_WATCH_NEXT         READ(NOTHING) /* of a watch of the session, which lasts while it may */
#define NEED_WATCH_CLOSE        ANYONE

static const struct need needs[UINT8_MAX + 1] = {
#define X(code, number, word, traits) [PST_WIRE_##code] = {NEED_##code},
    PST_WIRE_CODES(X)
#undef X
        [PST_POOL_JOIN] = {ADMIN},
    [PST_POOL_LEAVE] = {ADMIN},
    [PST_POOL_HEARTBEAT] = {ADMIN},
    [PST_POOL_MAP] = {ANYONE},             /* a pool's client begins with it */
    [PST_POOL_SUSPECT] = {WRITE(NOTHING)}, /* it keeps new values away from a node */
    [PST_POOL_LOCATE] = {READ(NOTHING)},
    [PST_POOL_PLACE] = {WRITE(NOTHING)},
    [PST_POOL_FIGURES] = {READ(NOTHING)},
    [PST_POOL_COPIES] = {ADMIN},
    [PST_POOL_REPAIR] = {ADMIN},
    [PST_POOL_DRAIN] = {ADMIN},
    [PST_POOL_NODES] = {READ(NOTHING)},
    [PST_POOL_FORGIVE] = {ADMIN},
    [PST_POOL_SHARE] = {ADMIN},
    [PST_POOL_SHARE + 1 ... PST_POOL_REPORT - 1] = {ADMIN},
    [PST_POOL_REPORT] = {WRITE(ALL)},
    [PST_POOL_REVOKE] = {WRITE(ALL)},
    [PST_POOL_MATCH] = {READ(ALL)},
    [PST_POOL_HITS] = {READ(ALL)},
    [PST_POOL_HITS + 1 ... PST_WIRE_ROLE_LAST] = {ADMIN},
};

uint8_t pst_right_needed(uint8_t code)
{
    return needs[code].right;
}

const char *pst_right_word(uint8_t right)
{
    static const char *const words[] = {
        [PST_RIGHT_READ] = "read", [PST_RIGHT_WRITE] = "write", [PST_RIGHT_ADMIN] = "admin"};

    pst_assert(right < pst_count_of(words));
    pst_assert(words[right]);
    return words[right];
}

/* Whether nothing that begins with @prefix lies at or behind @end, and nothing else before it does. */
static bool ends_within(struct pst_bytes end, struct pst_bytes prefix)
{
    const uint8_t *e = end.data, *p = prefix.data;
    size_t len = prefix.len; /* of what counts: behind "a\xff" comes "b" */
    int order;

    while (len > 0 && p[len - 1] == 0xff)
        len--;
    if (len == 0)
        return true; /* there is nothing behind the prefix */
    if (end.len == 0)
        return false;
    order = len > 1 ? memcmp(e, p, pst_min(end.len, len - 1)) : 0;
    if (order != 0 || end.len < len)
        return order <= 0;
    return e[len - 1] <= p[len - 1] || (e[len - 1] == p[len - 1] + 1 && end.len == len);
}

static bool names_lie_within(const struct pst_wire_op *op, enum names names, struct pst_bytes prefix)
{
    pst_assert(names != NAMES_NOTHING);
    pst_assert(prefix.len > 0);
    if (names == NAMES_ALL)
        return false;
    return pst_bytes_begin(op->key, prefix) && (names != NAMES_RANGE || ends_within(op->attrs, prefix));
}

uint8_t pst_grant_missing(const struct pst_grant_terms *terms, const struct pst_wire_op *op)
{
    struct need need = needs[op->code];

    pst_assert(terms->prefix_count <= PST_GRANT_PREFIXES_MAX);
    if (need.right == PST_RIGHT_NONE)
        return 0;
    if (need.right == 0)
        return PST_RIGHT_ADMIN;
    if (!(terms->rights & need.right))
        return need.right;
    if (terms->all_keys || need.names == NAMES_NOTHING)
        return 0;
    for (uint32_t i = 0; i < terms->prefix_count; i++) {
        if (names_lie_within(op, need.names, terms->prefixes[i]))
            return 0;
    }
    return need.right;
}

bool pst_grant_may_watch(const struct pst_grant_terms *terms, struct pst_bytes prefix)
{
    const struct pst_wire_op op = {.code = PST_WIRE_WATCH_OPEN, .key = prefix};

    return pst_grant_missing(terms, &op) == 0;
}

void pst_grant_terms_fini(struct pst_grant_terms *terms)
{
    pst_assert(terms->prefix_count <= PST_GRANT_PREFIXES_MAX);
    for (uint32_t i = 0; i < terms->prefix_count; i++)
        free((void *)(uintptr_t)terms->prefixes[i].data);
    terms->prefix_count = 0;
}

int pst_grant_terms_copy(const struct pst_grant_terms *terms, struct pst_grant_terms *out)
{
    struct pst_grant_terms copy = *terms;

    pst_assert(terms != out);
    pst_assert(terms->prefix_count <= PST_GRANT_PREFIXES_MAX);
    for (copy.prefix_count = 0; copy.prefix_count < terms->prefix_count; copy.prefix_count++) {
        struct pst_bytes from = terms->prefixes[copy.prefix_count];
        void *to = malloc(from.len);

        if (!to) {
            pst_grant_terms_fini(&copy);
            return -ENOMEM;
        }
        memcpy(to, from.data, from.len);
        copy.prefixes[copy.prefix_count] = (struct pst_bytes){to, from.len};
    }
    *out = copy;
    return 0;
}
