/* SPDX-License-Identifier: Apache-2.0 */
/* map.c: what the client asks the master: for the pool map, where keys are, where values are to go. One
 * that does not answer gives way to the next of the URL; when none does, what is known goes on. */
#include "client/pool/pool_op_priv.h"

#include "base/clock.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"

enum {
    ITEMS_MAX = 127,    /* keys in a question */
    FETCH_NS = 5000000, /* pool maps are not asked for more often, unless someone waits for one */
    MEMBERS_MAX = 1024, /* of a pool map, at first */
};

_Static_assert((int)ITEMS_MAX <= (int)PST_POOL_PLACE_MAX && (int)ITEMS_MAX <= (int)PST_POOL_LOCATE_MAX,
               "keys in a question");

/* Some pool operations' keys, on the way to a master and back; it frees itself. */
struct question {
    struct penstock_op op; /* its `user` is the question, or NULL for one that nobody waits for */
    struct pool_peer *master;
    uint32_t share; /* of the directory, that has the keys */
    uint32_t count;
    struct pool_op *pool_ops[ITEMS_MAX];
    uint8_t asks[PST_WIRE_QUESTION_BYTES_MAX];
    uint8_t answer[ITEMS_MAX * PST_POOL_ROUTE_BYTES_MAX];
};

/* ---- masters ---- */

/* The one that answered last, or the next that can be reached. NULL: none, and *@error is why. */
static struct pool_peer *find_master(struct pool *pool, int *error)
{
    pst_assert(pool->master_count > 0);
    pst_assert(pool->master < pool->master_count);
    *error = -EHOSTUNREACH;
    for (uint32_t i = 0; i < pool->master_count; i++) {
        struct pool_peer *peer = &pool->masters[pool->master];
        int r = pst_pool_peer_open(pool, peer);

        if (r == 0)
            return peer;
        *error = r;
        pool->master = (pool->master + 1) % pool->master_count;
    }
    return NULL;
}

/* Who has the share of the directory. NULL: nobody that can be reached, and *@error is why. */
static struct pool_peer *find_share(struct pool *pool, uint32_t share, int *error)
{
    struct pool_peer *peer = &pool->shares[share];
    const char *address, *fault;
    struct pst_boot_address at;

    pst_assert(share < PST_MAP_SHARES_MAX);
    if (share == 0)
        return find_master(pool, error);
    address = pool->map && share < pool->map->share_count ? pool->map->shares[share].address : "";
    *error = -EHOSTUNREACH;
    if (!*address || pst_boot_address_parse(address, &at, &fault) < 0)
        return NULL;
    if (memcmp(&peer->at, &at, sizeof(at)) != 0) {
        if (peer->underway > 0) /* to the one before, which ends soon */
            return NULL;
        pst_pool_peer_close(pool, peer);
        *peer = (struct pool_peer){.at = at};
        pst_list_init(&peer->link);
    }
    *error = pst_pool_peer_open(pool, peer);
    return *error == 0 ? peer : NULL;
}

/*
 * An answer, or what stands for it. Return: whether the master is there; it is, too, if it refuses what this
 * client has no right to, or what it cannot do. That it tells no places is what a node says.
 */
static bool master_answered(struct pool_peer *peer, const struct penstock_op *op)
{
    bool places = op->code == PST_POOL_MAP || op->code == PST_POOL_LOCATE || op->code == PST_POOL_PLACE;
    int result = op->result;
    bool there = result >= 0 || result == -EINVAL || result == -ENOBUFS || result == -ESTALE ||
                 (result == -EOPNOTSUPP && !places) || result == PST_POOL_OTHER_SHARE ||
                 (result == -EACCES && op->error_detail.denied & PST_DENIED_RIGHT);

    if (there)
        peer->retry_ms = 0;
    else
        pst_pool_peer_failed(peer, result);
    return there;
}

/* ---- the pool map ---- */

static void fetch_end(struct pool *pool, int result)
{
    struct pst_op_list askers = pool->fetch.askers;
    struct penstock_op *op;

    pst_assert(pool->fetch.underway);
    pst_assert(!pool->fetch.again || result != 0);
    pool->fetch.underway = false;
    pool->fetch.askers = (struct pst_op_list){0};
    while ((op = pst_op_list_pop(&askers)) != NULL)
        pst_op_end(op, result);
    pst_pool_map_ended(pool);
}

static void fetch_piece(struct pool *pool)
{
    struct pool_fetch *f = &pool->fetch;
    int error;
    struct pool_peer *master = find_master(pool, &error);

    pst_assert(f->underway);
    pst_assert(pool->master < pool->master_count);
    if (!master) {
        fetch_end(pool, error);
        return;
    }
    f->op = (struct penstock_op){.code = PST_POOL_MAP,
                                 .known_version = pool->map ? pool->map->version : 0,
                                 .offset = f->map.at,
                                 .data = f->piece,
                                 .bytes = sizeof(f->piece),
                                 .attrs = pool->map ? &pool->map->pool : NULL,
                                 .attr_bytes = pool->map ? sizeof(pool->map->pool) : 0,
                                 .user = master};
    pst_pool_peer_submit(pool, master, &f->op, 0, &pool->answered, UINT64_MAX);
}

static void fetch_begin(struct pool *pool)
{
    pst_assert(!pool->fetch.underway || pool->fetch.again);
    pool->fetch.underway = true;
    pool->fetch.again = false;
    pool->fetch.begun_ns = pst_now_ns();
    pst_map_fetch_begin(&pool->fetch.map);
    fetch_piece(pool);
}

void pst_pool_map_fetch(struct pool *pool)
{
    if (!pool->fetch.underway && pst_now_ns() > pool->fetch.begun_ns + FETCH_NS)
        fetch_begin(pool);
}

void pst_pool_map_want(struct pool *pool)
{
    if (pool->fetch.underway)
        pool->fetch.again = true; /* it may be of a moment before this */
    else
        fetch_begin(pool);
}

void pst_pool_map_ask(struct pool *pool, struct penstock_op *asker)
{
    pst_op_list_push(&pool->fetch.askers, asker);
    pst_pool_map_want(pool);
}

static int take_map(struct pool *pool)
{
    struct pst_map *map;
    int r = pst_map_fetch_decode(&pool->fetch.map, MEMBERS_MAX, &map);

    if (r == -E2BIG)
        r = pst_map_fetch_decode(&pool->fetch.map, PST_MAP_MEMBERS_MAX, &map);
    if (r < 0)
        return r;
    pst_assert(map->share_count >= 1);
    pst_assert(map->share_count <= PST_MAP_SHARES_MAX);
    if (pool->map && !pst_id_equal(&map->pool, &pool->map->pool)) { /* a handle stays with its pool */
        pst_map_close(map);
        return -EXDEV;
    }
    if (pool->map &&
        map->version < pool->map->version) { /* of a master that goes on from an older pool map */
        pst_map_close(map);
        return 0;
    }
    pst_map_close(pool->map);
    pool->map = map;
    pst_pool_nodes_take(pool);
    return 0;
}

/* Adds a piece to those before. Return: 1 there is more, 0 the pool map is here, -errno. */
static int add_piece(struct pool *pool)
{
    struct pool_fetch *f = &pool->fetch;
    int r = pst_map_fetch_take(&f->map, (struct pst_bytes){f->piece, f->op.value_bytes}, f->op.generation);

    if (r != 0)
        return r;
    if (!f->map.map_bytes) /* it is the one that is there */
        return pool->map ? 0 : -EPROTO;
    return take_map(pool);
}

static void map_answered(struct pool *pool)
{
    struct pool_fetch *f = &pool->fetch;
    struct pool_peer *master = f->op.user;
    int r = f->op.result;

    pst_assert(f->underway);
    pst_assert(master);
    pst_assert(f->op.code == PST_POOL_MAP);
    pst_assert(master >= pool->masters && master < pool->masters + pool->master_count);
    pst_pool_peer_back(pool, master);
    if (!master_answered(master, &f->op) || r == PENSTOCK_BUSY) {
        pst_map_fetch_begin(&f->map);
        fetch_piece(pool); /* from the next one */
        return;
    }
    r = r ? r : add_piece(pool);
    if (r > 0)
        fetch_piece(pool);
    else if (f->again && r == 0)
        fetch_begin(pool);
    else
        fetch_end(pool, r);
}

/* ---- where keys are ---- */

static void ask_items(struct pool *pool, struct question *q, uint8_t code)
{
    struct pst_pool_want_place wanted[ITEMS_MAX];
    struct pst_hash128 keys[ITEMS_MAX];
    struct pst_pool_asker asker;
    bool place = code == PST_POOL_PLACE;
    uint64_t until_ns = UINT64_MAX;
    const struct pst_traceparent *trace = NULL; /* of the first that has one: they wait for the answer */
    size_t bytes;

    pst_assert(q->count > 0 && q->count <= ITEMS_MAX);
    for (uint32_t i = 0; i < q->count; i++) {
        const struct pool_op *pool_op = q->pool_ops[i];

        keys[i] = pool_op->key;
        trace = trace ? trace : pst_op_trace(pool_op->op);
        until_ns = pst_min(until_ns, pool_op->until_ns + POOL_GRACE_NS);
        wanted[i] = (struct pst_pool_want_place){
            .key = pool_op->key, .bytes = pool_op->op->bytes, .replicas = pool_op->wanted};
    }
    memcpy(asker.pool, &pool->map->pool, sizeof(asker.pool));
    memcpy(asker.host, &pool->host, sizeof(asker.host));
    pst_assert(sizeof(asker) + q->count * sizeof(wanted[0]) <= sizeof(q->asks));
    bytes = pst_pool_put_items(q->asks, &asker, sizeof(asker), place ? (void *)wanted : (void *)keys,
                               place ? sizeof(wanted[0]) : sizeof(keys[0]), q->count);
    pst_assert(bytes <= sizeof(q->asks));
    q->op = (struct penstock_op){.code = code,
                                 .attrs = q->asks,
                                 .attr_bytes = (uint16_t)bytes,
                                 .data = q->answer,
                                 .bytes = q->count * PST_POOL_ROUTE_BYTES_MAX,
                                 .user = q};
    pst_op_set_trace(&q->op, trace);
    pst_pool_peer_submit(pool, q->master, &q->op, 0, &pool->answered, until_ns);
}

static struct question *question_open(struct pool *pool, uint32_t share, int *error)
{
    struct pool_peer *peer = find_share(pool, share, error);
    struct question *q = peer ? malloc(sizeof(*q)) : NULL;

    if (q) {
        q->master = peer;
        q->share = share;
        q->count = 0;
    } else if (peer) {
        *error = -ENOMEM;
    } else if (share > 0) { /* it may be with another process now; what its keys are is not known meanwhile */
        pst_pool_map_fetch(pool);
        *error = PENSTOCK_INCOMPLETE;
    }
    return q;
}

/* A question to each share that has any of their keys; more if they are many. */
static void ask(struct pool *pool, struct pst_list *pool_ops, uint8_t code)
{
    struct question *questions[PST_MAP_SHARES_MAX] = {NULL};
    struct pst_list these;
    int error;

    if (pst_list_empty(pool_ops))
        return;
    pst_assert(pool->map);
    pst_list_init(&these);
    pst_list_splice(&these, pool_ops); /* some ask again */
    while (!pst_list_empty(&these)) {
        struct pool_op *pool_op = pst_list_first(&these, struct pool_op, link);
        struct question **q = &questions[pst_map_share_of(&pool_op->key, pool->map->share_count)];

        pst_list_remove(&pool_op->link);
        if (!*q)
            *q = question_open(pool, (uint32_t)(q - questions), &error);
        if (!*q) {
            pst_pool_routed(pool, pool_op, NULL, error);
            continue;
        }
        pst_assert((*q)->count < ITEMS_MAX);
        (*q)->pool_ops[(*q)->count++] = pool_op;
        if ((*q)->count == ITEMS_MAX) {
            ask_items(pool, *q, code);
            *q = NULL;
        }
    }
    for (uint32_t i = 0; i < pool->map->share_count; i++) {
        if (questions[i])
            ask_items(pool, questions[i], code);
    }
}

void pst_pool_ask(struct pool *pool)
{
    ask(pool, &pool->locating, PST_POOL_LOCATE);
    ask(pool, &pool->placing, PST_POOL_PLACE);
}

static void question_answered(struct pool *pool, struct question *q)
{
    const uint8_t *at = q->answer, *peer = at + pst_min(q->op.value_bytes, sizeof(q->answer));
    bool there = master_answered(q->master, &q->op), sound = there && q->op.result == 0;

    pst_assert(q->count > 0 && q->count <= ITEMS_MAX);
    pst_assert(q->op.user == q);
    pst_pool_peer_back(pool, q->master);
    if (q->op.result == PST_POOL_OTHER_SHARE)
        pst_pool_map_fetch(pool);
    for (uint32_t i = 0; i < q->count; i++) {
        struct pst_pool_route route;

        if (q->op.result == PST_POOL_OTHER_SHARE || /* there are more or fewer now */
            q->op.result == PST_POOL_BUSY) {
            pst_pool_op_later(pool, q->pool_ops[i], NULL, PENSTOCK_BUSY);
            continue;
        }
        if (!there || q->op.result == -ENOBUFS) { /* again, or another master */
            pst_list_push_back(q->op.code == PST_POOL_PLACE ? &pool->placing : &pool->locating,
                               &q->pool_ops[i]->link);
            continue;
        }
        sound = sound && pst_pool_get_route(&at, peer, &route) == 0;
        pst_pool_routed(pool, q->pool_ops[i], sound ? &route : NULL, q->op.result ? q->op.result : -EPROTO);
    }
    free(q);
}

/* ---- what is between the caller and the master ---- */

/* A caller's operation on its way to a master and back; it frees itself. */
struct relay {
    struct penstock_op op; /* its `user` is the relay */
    struct penstock_op *asker;
    struct pool_peer *master;
    uint32_t share;
    uint32_t masters_left;
};

static void relay_send(struct pool *pool, struct relay *relay)
{
    int error;

    pst_assert(relay->masters_left > 0);
    relay->master = find_share(pool, relay->share, &error);
    if (!relay->master) {
        pst_op_end(relay->asker, error);
        free(relay);
        return;
    }
    relay->op = *relay->asker;
    relay->op.user = relay;
    pst_pool_peer_submit(pool, relay->master, &relay->op, 0, &pool->answered, UINT64_MAX);
}

void pst_pool_relay(struct pool *pool, struct penstock_op *asker, uint32_t share)
{
    struct relay *relay = malloc(sizeof(*relay));

    if (!relay) {
        pst_op_end(asker, -ENOMEM);
        return;
    }
    *relay =
        (struct relay){.asker = asker, .share = share, .masters_left = share == 0 ? pool->master_count : 1};
    relay_send(pool, relay);
}

static void relay_answered(struct pool *pool, struct relay *relay)
{
    bool there = master_answered(relay->master, &relay->op);

    pst_assert(relay->masters_left > 0);
    pst_assert(relay->op.user == relay);
    pst_pool_peer_back(pool, relay->master);
    if (!there && --relay->masters_left > 0) {
        relay_send(pool, relay);
        return;
    }
    relay->asker->value_bytes = relay->op.value_bytes;
    relay->asker->generation = relay->op.generation;
    relay->asker->error_detail = relay->op.error_detail;
    pst_op_end(relay->asker, relay->op.result);
    free(relay);
}

/* ---- what nobody waits for ---- */

struct note {
    struct penstock_op op;
    struct pst_list link;
    struct pool_peer *master;
    struct pst_pool_member member;
};

static void note_send(struct pool *pool, struct pool_peer *master, const struct pool_node *node)
{
    struct note *note = master ? malloc(sizeof(*note)) : NULL;

    pst_assert(pool->map);
    pst_assert(!node->ended);
    if (!note)
        return;
    *note = (struct note){.master = master, .member = {.epoch = node->epoch, .member = node->member}};
    memcpy(note->member.pool, &pool->map->pool, sizeof(note->member.pool));
    note->op = (struct penstock_op){
        .code = PST_POOL_SUSPECT, .attrs = &note->member, .attr_bytes = sizeof(note->member), .user = note};
    pst_list_push_back(&pool->noted, &note->link);
    pst_pool_peer_submit(pool, master, &note->op, 0, &pool->answered, UINT64_MAX);
}

void pst_pool_suspect(struct pool *pool, const struct pool_node *node)
{
    int error;

    if (pool->untrusted)
        return;
    note_send(pool, find_master(pool, &error), node);
    for (uint32_t i = 1; i < pool->map->share_count; i++) {
        if (pool->shares[i].channel) /* the others of the directory hear of it if they are asked anything */
            note_send(pool, find_share(pool, i, &error), node);
    }
}

static void note_answered(struct pool *pool, struct note *note)
{
    pst_assert(!pst_list_empty(&note->link));
    pst_assert(note->op.user == note);
    if (note->op.result == -EACCES) /* the master is there, and believes only who may write */
        pool->untrusted = true;
    else
        master_answered(note->master, &note->op);
    pst_pool_peer_back(pool, note->master);
    pst_list_remove(&note->link);
    free(note);
}

void pst_pool_notes_free(struct pool *pool)
{
    while (!pst_list_empty(&pool->noted)) {
        struct note *note = pst_list_first(&pool->noted, struct note, link);

        pst_list_remove(&note->link);
        free(note);
    }
}

void pst_pool_answered(struct pool *pool, struct penstock_op *op)
{
    if (op->code == PST_POOL_MAP)
        map_answered(pool);
    else if (op->code == PST_POOL_SUSPECT)
        note_answered(pool, op->user);
    else if (op->code == PST_POOL_LOCATE || op->code == PST_POOL_PLACE)
        question_answered(pool, op->user);
    else
        relay_answered(pool, op->user);
}
