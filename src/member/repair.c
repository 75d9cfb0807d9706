/* SPDX-License-Identifier: Apache-2.0 */
/* repair.c: a portion of the node's keys after the other: listed, asked about, sent. See repair.h. */
#include "member/repair.h"

#include "base/clock.h"
#include "directory/directory.h"
#include "directory/route.h"
#include "wire/pool_key.h"

#include <pthread.h>

enum {
    KEYS_MAX = PST_POOL_PLACE_MAX, /* of a portion */
    KEY_BYTES = 256 << 10,
    SCANNED_MAX = 4096, /* for a portion, of keys that have a home */
    ROUTES_BYTES = KEYS_MAX * PST_POOL_ROUTE_BYTES_MAX,
    SENDS_MAX = KEYS_MAX * PST_MAP_REPLICAS_MAX,
    UNDERWAY_MAX = 32,
    SEND_MS = 60000, /* the node itself says earlier that another does not answer */
    SLEEP_MS = 20,   /* while something is underway, so that deadlines are looked at */
    RETRY_MS = 200,
};

_Static_assert(sizeof(struct pst_pool_repair) + KEYS_MAX * sizeof(struct pst_pool_want_place) <=
                   PST_WIRE_QUESTION_BYTES_MAX,
               "a question has room for a portion");
_Static_assert((int)KEY_BYTES >= (int)PST_WIRE_KEY_BYTES_MAX, "a portion has room for the longest key");

#define REPAIRER_MAGIC 0x72657061u

struct send {
    struct penstock_op op;
    struct pst_wire_target target;
    uint64_t value_bytes;
};

struct pst_repairer {
    uint32_t magic;
    struct penstock *store;
    struct pst_serving *serving;
    const struct pst_member_sender *sender;
    struct pst_channel_options node;
    uint64_t ask_ms;
    pthread_mutex_t lock;
    pthread_cond_t stir;
    struct pst_repair_time told[PST_MAP_SHARES_MAX]; /* lock: by each share's process */
    bool stopping;                                   /* lock */
    pthread_t thread;
    bool running;

    /* The thread's. */
    struct pst_repair_time time;                     /* that it goes through the keys for, */
    struct pst_repair_time last[PST_MAP_SHARES_MAX]; /* and has gone */
    struct pst_channel *self, *master;
    struct pst_boot_address master_at;
    struct pst_pool_repair head; /* what has been done since the master heard of it */
    uint8_t resume[PST_WIRE_KEY_BYTES_MAX];
    size_t resume_bytes;
    bool begun, more;
    uint32_t key_count, send_count;
    struct pst_bytes keys[KEYS_MAX];
    struct pst_pool_want_place wanted[KEYS_MAX];
    struct send sends[SENDS_MAX];
    uint8_t key_bytes[KEY_BYTES];
    uint8_t question[PST_WIRE_QUESTION_BYTES_MAX];
    uint8_t routes[ROUTES_BYTES];
};

static bool is_same_time(const struct pst_repair_time *a, const struct pst_repair_time *b)
{
    return a->repair == b->repair && a->epoch == b->epoch && a->share_last == b->share_last;
}

/* The master has counted on, or the end has come. */
static bool is_over(struct pst_repairer *r)
{
    bool over;

    pthread_mutex_lock(&r->lock);
    over = r->stopping || !is_same_time(&r->told[r->time.share], &r->time);
    pthread_mutex_unlock(&r->lock);
    return over;
}

/* ---- channels ---- */

static int open_self(struct pst_repairer *r)
{
    struct pst_channel_options options = r->node;
    const char *fault;

    options.timeout_ms = SEND_MS;
    return r->self ? 0 : pst_channel_open(&options, &r->self, &fault);
}

static int open_master(struct pst_repairer *r)
{
    struct pst_channel_options options = r->node;
    const char *fault;

    pst_assert(r->ask_ms > 0 && r->ask_ms <= UINT32_MAX);
    if (r->master && memcmp(&r->master_at, &r->time.master, sizeof(r->master_at)) == 0)
        return 0;
    r->master = pst_channel_close(r->master);
    r->master_at = options.address = r->time.master;
    options.connect_ms = options.timeout_ms = (uint32_t)r->ask_ms;
    return pst_channel_open(&options, &r->master, &fault);
}

/* ---- a portion of the keys ---- */

/* Return: whether it is one to ask about. */
static bool add_key(struct pst_repairer *r, const struct penstock_entry *entry, uint8_t *at)
{
    struct pst_hash128 hash = pst_hash128(entry->key, entry->key_bytes, r->time.seed);
    struct pst_pool_want_place *wanted = &r->wanted[r->key_count];
    uint32_t copies;

    pst_assert(r->key_count < KEYS_MAX);
    pst_assert(at + entry->key_bytes <= r->key_bytes + sizeof(r->key_bytes));
    if (pst_map_share_of(&hash, r->time.share_last + 1u) != r->time.share)
        return false;
    memcpy(at, entry->key, entry->key_bytes);
    r->keys[r->key_count] = (struct pst_bytes){at, entry->key_bytes};
    copies = (uint32_t)pst_max(entry->copies, pst_serving_replicas(r->serving, r->keys[r->key_count]));
    *wanted = (struct pst_pool_want_place){.key = hash,
                                           .bytes = entry->value_bytes,
                                           .replicas = (uint8_t)pst_min(copies, PST_MAP_REPLICAS_MAX),
                                           .evictable = entry->cache != 0};
    r->key_count++;
    return true;
}

/* Those that may lie anywhere, from where the last portion ended. Return: 0 or -errno. */
static int list_keys(struct pst_repairer *r)
{
    struct penstock_list_options from = {
        .size = sizeof(from), .start = r->resume, .start_bytes = r->resume_bytes};
    struct penstock_list *list = NULL;
    struct penstock_entry entry;
    uint32_t scanned = 0;
    size_t bytes = 0;
    int more = penstock_list_open(r->store, &from, &list);

    r->key_count = 0;
    if (more == 0)
        more = 1;
    while (more == 1 && scanned < SCANNED_MAX && r->key_count < KEYS_MAX &&
           bytes + PST_WIRE_KEY_BYTES_MAX <= KEY_BYTES && (more = penstock_list_next(list, &entry)) == 1) {
        pst_assert(entry.key_bytes <= sizeof(r->resume));
        memcpy(r->resume, entry.key, entry.key_bytes);
        r->resume_bytes = entry.key_bytes;
        if (r->resume_bytes < sizeof(r->resume))
            r->resume[r->resume_bytes++] = '\0'; /* the first key behind it */
        scanned++;
        if (pst_serving_partition_of(r->serving, (struct pst_bytes){entry.key, entry.key_bytes}) <
            PST_PARTITIONS)
            continue;
        if (add_key(r, &entry, r->key_bytes + bytes))
            bytes += entry.key_bytes;
    }
    penstock_list_close(list);
    r->more = more == 1;
    return more < 0 ? more : 0;
}

/* ---- where to ---- */

static void add_sends(struct pst_repairer *r, uint32_t key, const struct pst_pool_route *route)
{
    pst_assert(key < r->key_count);
    for (uint32_t i = 0; i < route->place_count && r->send_count < SENDS_MAX; i++) {
        struct send *send = &r->sends[r->send_count++];

        *send = (struct send){.value_bytes = r->wanted[key].bytes, .target.member = route->places[i].member};
        send->op = (struct penstock_op){.code = PST_WIRE_COPY_SEND,
                                        .key = r->keys[key].data,
                                        .key_bytes = (uint16_t)r->keys[key].len,
                                        .attrs = &send->target,
                                        .attr_bytes = sizeof(send->target),
                                        .user = send};
    }
}

static int read_routes(struct pst_repairer *r, size_t bytes)
{
    const uint8_t *at = r->routes, *end = r->routes + bytes;
    struct pst_pool_route route;

    for (uint32_t i = 0; i < r->key_count; i++) {
        int error = pst_pool_get_route(&at, end, &route);

        if (error < 0)
            return error;
        if (route.status == PST_POOL_ROUTED)
            add_sends(r, i, &route);
    }
    return 0;
}

/* Tells what has been done, and asks about the portion. Return: 0, or why nothing is known. */
static int ask(struct pst_repairer *r)
{
    struct penstock_op op = {
        .code = PST_POOL_REPAIR, .attrs = r->question, .data = r->routes, .bytes = sizeof(r->routes)};
    struct pst_op_list done = {0};
    int error = open_master(r);

    pst_assert(r->key_count <= KEYS_MAX);
    r->send_count = 0;
    if (error < 0)
        return error;
    memcpy(r->head.pool, &r->time.pool, sizeof(r->head.pool));
    r->head.member = r->time.member;
    r->head.epoch = r->time.epoch;
    r->head.repair = r->time.repair;
    r->head.flags = (uint8_t)((r->begun ? 0 : PST_REPAIR_BEGIN) | (r->more ? 0 : PST_REPAIR_END));
    op.attr_bytes = (uint16_t)pst_pool_put_items(r->question, &r->head, sizeof(r->head), r->wanted,
                                                 sizeof(r->wanted[0]), r->key_count);
    pst_channel_submit(r->master, &op, 0, &done);
    pst_channel_flush(r->master);
    while (!done.count)
        pst_channel_wait(r->master, &done, SLEEP_MS);
    r->begun |= op.result == 0;
    if (op.result == 0 || op.result == -ESTALE)
        r->head = (struct pst_pool_repair){.done = 0};
    else
        r->master = pst_channel_close(r->master);
    return op.result == 0 ? read_routes(r, op.value_bytes) : op.result;
}

/* ---- sending ---- */

static void take_ended(struct pst_repairer *r, struct pst_op_list *done, uint32_t *underway)
{
    while (done->count) {
        struct penstock_op *op = pst_op_list_pop(done);
        const struct send *send = op->user;

        pst_assert(*underway > 0);
        pst_assert(send >= r->sends && send < r->sends + r->send_count);
        (*underway)--;
        if (op->result == 0) {
            r->head.done++;
            r->head.bytes += send->value_bytes;
        } else if (op->result != PENSTOCK_MISS) { /* it has gone meanwhile */
            r->head.failed++;
        }
    }
}

static int shard_of(const struct pst_repairer *r, const struct send *send)
{
    return (int)pst_channel_shard_of(r->self, (struct pst_bytes){send->op.key, send->op.key_bytes});
}

/* What has begun ends, whatever comes. */
static int send_all(struct pst_repairer *r)
{
    struct pst_op_list done = {0};
    uint32_t next = 0, underway = 0;
    int error = open_self(r);

    if (error < 0)
        return error;
    pst_assert(r->send_count <= SENDS_MAX);
    while (underway > 0 || (next < r->send_count && !is_over(r))) {
        uint64_t now_ns = pst_now_ns();

        while (next < r->send_count && underway < UNDERWAY_MAX &&
               r->sender->may_send(r->sender->ctx, r->sends[next].value_bytes, now_ns)) {
            struct send *send = &r->sends[next++];

            pst_channel_submit(r->self, &send->op, shard_of(r, send), &done);
            underway++;
        }
        pst_channel_flush(r->self);
        pst_channel_wait(r->self, &done, next < r->send_count ? 1 : SLEEP_MS);
        take_ended(r, &done, &underway);
    }
    return 0;
}

/* ---- the thread ---- */

/* All keys. Return: 0, or why not all of them. */
static int go_through(struct pst_repairer *r)
{
    int error = 0;

    pst_assert(r->time.repair > 0);
    pst_assert(r->time.epoch > 0);
    r->resume_bytes = 0;
    r->more = true;
    r->begun = false;
    while (r->more && error == 0) {
        error = is_over(r) ? -ESTALE : list_keys(r);
        if (error == 0 && (r->key_count > 0 || !r->more))
            error = ask(r);
        if (error == 0 && r->send_count > 0)
            error = send_all(r);
    }
    r->key_count = 0;
    if (error == 0 && (r->head.done || r->head.failed)) {
        r->more = true; /* the end has been told */
        error = ask(r);
    }
    return error;
}

/* One that has told of another time than the last; from @first on, since one that is away is not to hold up
 * the others. NULL: none has. The lock is held. */
static const struct pst_repair_time *next_time(const struct pst_repairer *r, uint32_t first)
{
    pst_assert(first < PST_MAP_SHARES_MAX);
    for (uint32_t i = 0; i < PST_MAP_SHARES_MAX; i++) {
        uint32_t share = (first + i) % PST_MAP_SHARES_MAX;

        if (r->told[share].repair && !is_same_time(&r->told[share], &r->last[share]))
            return &r->told[share];
    }
    return NULL;
}

/* Return: false: the end has come. */
static bool wait_for_time(struct pst_repairer *r)
{
    uint32_t first = (r->time.share + 1u) % PST_MAP_SHARES_MAX;
    const struct pst_repair_time *next;
    bool goes_on;

    pthread_mutex_lock(&r->lock);
    while ((next = next_time(r, first)) == NULL && !r->stopping)
        pthread_cond_wait(&r->stir, &r->lock);
    if (next)
        r->time = *next;
    goes_on = !r->stopping;
    pthread_mutex_unlock(&r->lock);
    return goes_on;
}

static void *repairer_main(void *arg)
{
    struct pst_repairer *r = arg;

    pst_assert(r->magic == REPAIRER_MAGIC);
    while (wait_for_time(r)) {
        if (go_through(r) == 0)
            r->last[r->time.share] = r->time;
        else if (!is_over(r))
            usleep(RETRY_MS * 1000);
    }
    return NULL;
}

/* ---- outward ---- */

int pst_repairer_open(const struct pst_channel_options *node, struct penstock *store,
                      struct pst_serving *serving, const struct pst_member_sender *sender, uint64_t ask_ms,
                      struct pst_repairer **out)
{
    struct pst_repairer *r = calloc(1, sizeof(*r));
    int error;

    pst_assert(ask_ms > 0);
    pst_assert(sender->may_send);
    if (!r)
        return -ENOMEM;
    r->magic = REPAIRER_MAGIC;
    r->store = store;
    r->serving = serving;
    r->sender = sender;
    r->node = *node;
    r->ask_ms = ask_ms;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->stir, NULL);
    error = -pthread_create(&r->thread, NULL, repairer_main, r);
    r->running = error == 0;
    if (error < 0) {
        pst_repairer_close(r);
        return error;
    }
    *out = r;
    return 0;
}

void pst_repairer_tell(struct pst_repairer *r, const struct pst_repair_time *time)
{
    pst_assert(r->magic == REPAIRER_MAGIC);
    pthread_mutex_lock(&r->lock);
    pst_assert(time->share <= time->share_last && time->share_last < PST_MAP_SHARES_MAX);
    r->told[time->share] = *time;
    for (uint32_t i = time->share_last + 1u; i < PST_MAP_SHARES_MAX; i++)
        r->told[i].repair = 0; /* there are fewer */
    pthread_cond_signal(&r->stir);
    pthread_mutex_unlock(&r->lock);
}

void pst_repairer_stop(struct pst_repairer *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_signal(&r->stir);
    pthread_mutex_unlock(&r->lock);
}

struct pst_repairer *pst_repairer_close(struct pst_repairer *r)
{
    if (!r)
        return NULL;
    pst_assert(r->magic == REPAIRER_MAGIC);
    pst_repairer_stop(r);
    if (r->running)
        pthread_join(r->thread, NULL);
    pst_channel_close(r->self);
    pst_channel_close(r->master);
    pthread_cond_destroy(&r->stir);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}
