/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedded.c: the embedded store: operations are carried out by the thread that submits them, under the lock
 * of the shard they touch. Long copies run without the lock: into a reservation that nobody sees, or out of a
 * record that a reference keeps.
 */
#include "client/embedded/embedded_priv.h"
#include "client/view_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "store/exec.h"
#include "store/figures.h"
#include "store/keys.h"
#include "store/read.h"
#include "store/settings.h"
#include "store/reservation.h"
#include "wire/route.h"

#include <stdio.h>

enum { TIMEOUT_MS = 10000 }; /* of a wait that names none */

#define LOCAL_OWN_OPTIONS(X)                                                                                 \
    X(NUMBER, shards, "1", 1, 256, "shards", "parts that threads may use at once")                           \
    X(LIST, cache, "", 0, 0, "PREFIX", "keys with this prefix may be evicted")                               \
    X(FLAG, cache_all, "no", 0, 0, "", "all keys may be evicted")                                            \
    X(STRING, follow, "", 0, 0, "URL", "have what that store has")                                           \
    X(STRING, prefix, "", 0, 0, "PREFIX", "as far as keys begin with it")
#define LOCAL_OPTIONS(X) PST_STORE_SETTINGS(X) LOCAL_OWN_OPTIONS(X)

struct local_settings {
    PST_STORE_SETTINGS_MEMBERS
    LOCAL_OWN_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct local_settings
static const struct pst_options local_options = PST_OPTION_TABLE(LOCAL_OPTIONS);

struct pst_shard *pst_local_lock(struct pst_local *l, uint32_t number)
{
    struct pst_shard *shard;

    pst_assert(number < l->shard_count);
    pthread_mutex_lock(&l->locks[number]);
    shard = pst_store_shard(l->store, number);
    if (pst_unlikely(pst_shard_expires(shard)))
        pst_shard_time(shard, pst_now_ns());
    return shard;
}

void pst_local_unlock(struct pst_local *l, uint32_t number)
{
    struct pst_shard *shard = pst_store_shard(l->store, number);

    pst_assert(number < l->shard_count);
    if (pst_unlikely(pst_shard_has_ready(shard) || pst_tier_has_ended(shard)))
        pst_local_wake(l, shard);
    pthread_mutex_unlock(&l->locks[number]);
}

/* ---- put ---- */

void pst_local_relieve(struct pst_local *l)
{
    for (uint32_t i = 0; i < l->shard_count; i++) {
        struct pst_shard *shard = pst_local_lock(l, i);

        pst_shard_tick(shard, pst_now_ns());
        pst_local_unlock(l, i);
    }
}

static void copy_value(struct pst_shard *shard, const struct pst_record *record, const struct penstock_op *op,
                       uint64_t offset, uint64_t bytes, bool into_store)
{
    struct iovec piece;

    pst_assert(bytes <= record->value_bytes);
    pst_assert(offset <= record->value_bytes - bytes);
    for (uint64_t at = 0; at < bytes; at += piece.iov_len) {
        pst_record_piece(shard, record, offset + at, bytes - at, &piece);
        pst_assert(piece.iov_len > 0 && piece.iov_len <= bytes - at);
        if (into_store)
            pst_op_copy_out(op, at, piece.iov_base, piece.iov_len);
        else
            pst_op_copy_in(op, at, piece.iov_base, piece.iov_len);
    }
}

static int put_once(struct pst_local *l, uint32_t number, struct penstock_op *op, struct pst_put *put,
                    struct pst_answer *answer)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    uint64_t now_ns = pst_now_ns(); /* read anew after what takes long */
    struct pst_pending pending;
    bool unlocked = op->bytes > COPY_LOCKED_BYTES_MAX;
    int r = 0;

    put->lookup = pst_shard_lookup(shard, (struct pst_bytes){op->key, op->key_bytes});
    if (pst_unlikely(op->flags & PENSTOCK_DURABLE))
        r = pst_put_check_durable(shard, put, answer);
    if (r == 0) {
        r = pst_shard_reserve(shard, put, now_ns, &pending, answer);
        if (r == -EFBIG)
            answer->limit_bytes = pst_store_value_bytes_max(l->store);
    }
    if (r == 0) {
        pst_assert(pending.record->value_bytes == op->bytes);
        if (unlocked)
            pst_local_unlock(l, number);
        copy_value(shard, pending.record, op, 0, op->bytes, true);
        if (unlocked) {
            pst_local_lock(l, number);
            now_ns = pst_now_ns();
        }
        r = pst_shard_commit(shard, put, &pending, now_ns, answer);
        pst_assert(!pending.record);
    }
    if (r == 0 && pst_unlikely(op->flags & PENSTOCK_DURABLE)) {
        r = pst_local_save(l, number, op, pst_shard_find(shard, &put->lookup));
        now_ns = pst_now_ns();
    }
    pst_shard_tick(shard, now_ns);
    pst_local_unlock(l, number);
    return r;
}

void pst_local_answer(struct penstock_op *op, const struct pst_answer *answer)
{
    op->generation = answer->generation;
    op->value_bytes = answer->value_bytes;
    op->error_detail.limit_bytes = answer->limit_bytes;
    op->error_detail.prefix_bytes = answer->prefix_bytes;
}

_Static_assert((int)PST_PUT_IF_ABSENT == (int)PENSTOCK_IF_ABSENT &&
                   (int)PST_PUT_IF_GENERATION == (int)PENSTOCK_IF_GENERATION &&
                   (int)PST_PUT_CHECKSUM == (int)PENSTOCK_CHECKSUM,
               "the store's flags");

struct pst_put pst_local_put(const struct penstock_op *op)
{
    return (struct pst_put){.attrs = {op->attrs, op->attrs ? op->attr_bytes : 0},
                            .value_bytes = op->bytes,
                            .if_generation = op->if_generation,
                            .ttl_ms = op->flags & PENSTOCK_TTL ? op->ttl_ms : 0,
                            .depth = op->depth,
                            .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION)};
}

static int put_op(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_put put = pst_local_put(op);
    int tries = 0;
    struct pst_answer answer = {0};
    int r;

    put.flags |= op->flags & PST_PUT_CHECKSUM;
    if (op->flags & PENSTOCK_CHECKSUM)
        put.value_crc = pst_op_crc(op, op->bytes);
    do
        r = put_once(l, number, op, &put, &answer);
    while (r == PST_BUSY && pst_local_again(l, op, &tries));
    pst_local_answer(op, &answer);
    return r;
}

/* ---- get ---- */

static int read_value(struct pst_local *l, uint32_t number, struct pst_shard *shard,
                      struct pst_record *record, struct penstock_op *op)
{
    bool range = op->flags & PENSTOCK_RANGE, checked = record->flags & PST_RECORD_CHECKSUM && !range;
    const struct pst_get get = {.offset = range ? pst_op_range_offset(op) : 0,
                                .bytes = op->bytes,
                                .generation = op->if_generation,
                                .only = op->flags & PENSTOCK_IF_GENERATION,
                                .unless = op->flags & PENSTOCK_UNLESS_GENERATION,
                                .range = range,
                                .exact = op->flags & PENSTOCK_EXACT};
    uint64_t offset, bytes;
    uint32_t crc = record->value_crc;
    int r = pst_get_plan(record, &get, &offset, &bytes);
    bool unlocked;

    if (r == 0)
        r = pst_local_fetch(l, number, op, &record, &offset, bytes);
    if (r != 0 || bytes == 0)
        return r;
    pst_assert(bytes <= op->bytes);
    pst_assert(offset + bytes <= record->value_bytes);
    pst_shard_read(shard, record);
    unlocked = bytes > COPY_LOCKED_BYTES_MAX && pst_shard_ref(shard, record) == 0;
    if (unlocked)
        pst_local_unlock(l, number);
    copy_value(shard, record, op, offset, bytes, false);
    if (unlocked) {
        pst_local_lock(l, number);
        pst_shard_unref(shard, record);
    }
    return checked && pst_op_crc(op, bytes) != crc ? -EBADMSG : 0;
}

static int get_op(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_lookup lookup = pst_shard_lookup(shard, (struct pst_bytes){op->key, op->key_bytes});
    struct pst_record *record;
    uint64_t now_ns = pst_now_ns();
    int r = PENSTOCK_MISS;

    pst_shard_tick(shard, now_ns); /* no thread does it: pins end by time when someone looks */
    record = pst_shard_find(shard, &lookup);
    if (!record && now_ns < until_ns) {
        r = pst_local_park(l, number, op, until_ns, &lookup, NULL);
        pst_local_unlock(l, number);
        return r;
    }
    if (record) {
        op->generation = record->generation;
        op->value_bytes = record->value_bytes;
        if (op->attrs) {
            struct pst_bytes attrs = pst_record_attrs(record);

            pst_assert(attrs.len <= PST_ATTR_BYTES_MAX);
            memcpy(op->attrs, attrs.data, pst_min(attrs.len, op->attr_bytes));
            op->attr_bytes = (uint16_t)attrs.len;
        }
        r = 0;
        if (op->code == PENSTOCK_GET) {
            pst_shard_touch(shard, record, now_ns);
            r = read_value(l, number, shard, record, op);
        }
    }
    if (op->code == PENSTOCK_GET && r != LOCAL_PARKED)
        pst_shard_count_read(shard, record != NULL);
    pst_local_unlock(l, number);
    return r;
}

/* ---- views ---- */

static int view_op(struct pst_local *l, uint32_t number, const struct pst_lookup *lookup,
                   struct penstock_op *op)
{
    struct pst_shard *shard = pst_store_shard(l->store, number);
    const uint8_t *base = pst_store_arenas(l->store)->base;
    struct pst_record *record = pst_shard_find(shard, lookup);
    struct pst_wire_view *out = op->data;
    struct pst_wire_piece *pieces = (struct pst_wire_piece *)(out + 1);
    uint32_t room = (uint32_t)((op->bytes - sizeof(*out)) / sizeof(*pieces));
    struct iovec piece;
    uint64_t at = 0, generation = record ? record->generation : 0; /* what is fetched may be no key's */
    int r = record ? pst_local_fetch(l, number, op, &record, &at, record->value_bytes) : PENSTOCK_MISS;

    pst_assert(op->bytes >= sizeof(*out));
    if (r != LOCAL_PARKED)
        pst_shard_count_read(shard, record != NULL);
    if (r != 0)
        return r;
    pst_assert(record);
    *out = (struct pst_wire_view){.handle = (uintptr_t)record, .value_bytes = record->value_bytes};
    for (; at < record->value_bytes; at += piece.iov_len) {
        if (out->piece_count == room)
            return -E2BIG;
        pst_record_piece(shard, record, at, record->value_bytes - at, &piece);
        pieces[out->piece_count++] =
            (struct pst_wire_piece){(uint64_t)((uint8_t *)piece.iov_base - base), piece.iov_len};
    }
    pst_assert(at == record->value_bytes);
    op->generation = generation;
    op->value_bytes = sizeof(*out) + out->piece_count * sizeof(*pieces);
    pst_shard_touch(shard, record, pst_now_ns());
    pst_shard_read(shard, record);
    return pst_shard_ref(shard, record);
}

/* ---- everything ---- */

static uint32_t local_shard_of(struct penstock *store, struct pst_bytes key)
{
    return pst_route_shard(key, pst_store_partition_seed(store->local->store), store->local->shard_count);
}

static int other_op(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_lookup lookup = pst_shard_lookup(shard, (struct pst_bytes){op->key, op->key_bytes});
    struct pst_range range = {.start = {op->key, op->key_bytes},
                              .end = {op->attrs, op->attr_bytes},
                              .after = op->flags & PST_WIRE_AFTER};
    struct pst_answer answer = {0};
    bool end = false;
    int64_t bytes;
    int r = 0;

    pst_shard_tick(shard, pst_now_ns());
    switch (op->code) {
    case PENSTOCK_DELETE:
        r = pst_shard_delete(shard, &lookup, op->flags & PENSTOCK_IF_GENERATION, op->if_generation, &answer);
        pst_local_answer(op, &answer);
        break;
    case PENSTOCK_PIN:
        r = pst_shard_pin(shard, &l->holders[number], &lookup, op->pin_ms, pst_now_ns());
        break;
    case PENSTOCK_UNPIN:
        r = pst_shard_unpin(shard, &l->holders[number], &lookup);
        break;
    case PST_WIRE_LIST:
        bytes = pst_shard_list(shard, &range, op->data, op->bytes, &end);
        pst_assert(bytes <= (int64_t)op->bytes);
        r = bytes < 0 ? (int)bytes : 0;
        op->value_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
        op->generation = end;
        break;
    case PST_WIRE_SWEEP:
        op->value_bytes = pst_shard_sweep(shard, &range, op->flags & PST_WIRE_SPARE, pst_now_ns(), op->data);
        pst_assert(op->value_bytes > 0); /* commits underway hold the shard's lock */
        break;
    case PST_WIRE_STAT:
        pst_assert(op->bytes >= sizeof(struct pst_figures));
        pst_shard_poll(shard, pst_now_ns()); /* what nobody waits for ends for those who look */
        pst_figures_read(l->store, shard, op->data);
        op->value_bytes = sizeof(struct pst_figures);
        break;
    case PST_WIRE_VIEW:
        r = view_op(l, number, &lookup, op);
        break;
    case PST_WIRE_RELEASE:
        pst_assert(op->handle);
        pst_shard_unref(shard, (struct pst_record *)(uintptr_t)op->handle);
        break;
    case PST_WIRE_FLUSH:
        r = pst_local_flush(l, number, op);
        break;
    case PST_WIRE_WATCH_OPEN:
    case PST_WIRE_WATCH_NEXT:
    case PST_WIRE_WATCH_CLOSE:
        r = pst_local_watch(l, number, op, until_ns);
        break;
    default:
        pst_assert(op->code == PST_WIRE_PING);
    }
    pst_local_unlock(l, number);
    return r;
}

int pst_local_apply(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns)
{
    if (op->code == PENSTOCK_PUT)
        return put_op(l, number, op);
    if (pst_code_has(op->code, PST_CODE_READS))
        return get_op(l, number, op, until_ns);
    if (pst_code_has(op->code, PST_CODE_RESERVATION))
        return pst_local_reservation_op(l, number, op);
    if (op->code == PST_WIRE_COMMIT)
        return pst_local_commit(l, op);
    return other_op(l, number, op, until_ns);
}

static bool reads(const struct penstock_op *op)
{
    return op->code == PENSTOCK_GET || op->code == PST_WIRE_VIEW;
}

static void local_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    struct pst_local *l = store->local;
    uint64_t wait_ms = pst_op_wait_ms(op, l->timeout_ms), until_ns = 0;
    uint32_t number;
    int r = pst_op_begin(op, shard, done);

    if (r == 0) {
        number =
            shard >= 0 ? (uint32_t)shard : local_shard_of(store, (struct pst_bytes){op->key, op->key_bytes});
        if (pst_unlikely(wait_ms))
            until_ns = pst_deadline_ns(pst_now_ns(), wait_ms);
        r = pst_local_apply(l, number, op, until_ns);
        while (pst_unlikely(r == PENSTOCK_BUSY) && reads(op) && pst_local_once_more(l, op)) {
            pst_local_await(store, done, SIZE_MAX, 0); /* memory comes back as those before it end */
            r = pst_local_apply(l, number, op, until_ns);
        }
    }
    if (r != LOCAL_PARKED)
        pst_op_end(op, r);
}

/* ---- the backend ---- */

static void local_flush(struct penstock *store)
{
    (void)store;
}

static bool local_poll(struct penstock *store)
{
    (void)store;
    return false;
}

static int local_fd(struct penstock *store)
{
    return store->local->disks_fd;
}

static int local_arm(struct penstock *store)
{
    (void)store;
    return 0;
}

static uint32_t local_shards(struct penstock *store)
{
    return store->local->shard_count;
}

static const char *local_lane(struct penstock *store)
{
    (void)store;
    return "memory";
}

/* Pieces are offsets into the arenas, as everywhere. */
static int local_map(struct penstock *store, int shard, uint64_t session, const struct pst_wire_piece *pieces,
                     uint32_t count, struct penstock_view *view)
{
    (void)shard;
    const struct pst_arenas *arenas = pst_store_arenas(store->local->store);
    struct pst_piece_file files[PST_VIEW_PIECES_MAX];

    (void)session;
    pst_assert(count <= PST_VIEW_PIECES_MAX);
    if (count <= 1) {
        view->data = count ? arenas->base + pieces[0].offset : (const uint8_t *)"";
        return 0;
    }
    for (uint32_t i = 0; i < count; i++)
        files[i] = (struct pst_piece_file){arenas->fds[pieces[i].offset / arenas->stride],
                                           pieces[i].offset % arenas->stride};
    return pst_stitch(pieces, files, count, view);
}

static void local_unmap(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    pst_unstitch(view);
}

static bool local_view_lives(struct penstock *store, const struct penstock_view *view)
{
    (void)store;
    return view->reserved[VIEW_HANDLE] != NULL;
}

static int local_add_memory(struct penstock *store, void *addr, size_t bytes, void **handle)
{
    (void)store;
    (void)bytes;
    *handle = addr;
    return 0;
}

static void local_drop_memory(struct penstock *store, void *handle)
{
    (void)store;
    (void)handle;
}

static void local_close(struct penstock *store)
{
    struct pst_local *l = store->local;

    pst_assert(l && l->handle == store);
    pst_local_waits_fini(l);
    for (uint32_t i = 0; l->locks && i < l->shard_count; i++)
        pthread_mutex_destroy(&l->locks[i]);
    for (uint32_t i = 0; l->holders && i < l->shard_count; i++)
        pst_holder_end(pst_store_shard(l->store, i), &l->holders[i]);
    free(l->holders);
    free(l->locks);
    pst_store_close(l->store);
    pst_local_tier_fini(l);
    free(l);
}

const struct pst_backend pst_backend_local = {
    .locks_itself = true,
    .submit = local_submit,
    .flush = local_flush,
    .poll = local_poll,
    .await = pst_local_await,
    .fd = local_fd,
    .arm = local_arm,
    .shards = local_shards,
    .shard_of = local_shard_of,
    .lane = local_lane,
    .map = local_map,
    .unmap = local_unmap,
    .view_lives = local_view_lives,
    .add_memory = local_add_memory,
    .drop_memory = local_drop_memory,
    .close = local_close,
};

static int open_local(struct penstock *store, const struct local_settings *settings, uint32_t timeout_ms)
{
    static const char *const every_prefix[] = {""};
    const struct pst_store_options options = {
        .arenas.prefault = settings->ssd.count > 0, /* all of it is the disk's; huge pages if it may */
        .shard_count = (uint32_t)settings->shards,
        .cache_prefixes = settings->cache_all ? every_prefix : (const char *const *)settings->cache.items,
        .cache_prefix_count = settings->cache_all ? 1 : settings->cache.count,
    };
    char fault[PST_FAULT_BYTES];
    struct pst_local *l;
    int r;

    pst_assert(!store->local);
    pst_assert(!store->backend);
    l = calloc(1, sizeof(*l));
    if (!l)
        return pst_fail(-ENOMEM, "out of memory");
    l->handle = store;
    l->wake_fd = l->disks_fd = -1;
    l->timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS;
    pst_local_waits_init(l);
    store->local = l;
    store->backend = &pst_backend_local;
    r = pst_store_open_set(&settings->store, options, &l->store, fault);
    if (r < 0)
        return pst_fail(r, "%s: %s", store->url, fault);
    r = pst_local_tier_init(l);
    if (r < 0)
        return pst_fail(r, "%s: %s", store->url, strerror(-r));
    pst_assert(options.shard_count == pst_store_shard_count(l->store));
    pst_assert(options.shard_count <= PST_SHARDS_MAX);
    l->locks = calloc(options.shard_count, sizeof(pthread_mutex_t));
    l->holders = calloc(options.shard_count, sizeof(*l->holders));
    if (!l->locks || !l->holders)
        return pst_fail(-ENOMEM, "out of memory");
    for (; l->shard_count < options.shard_count; l->shard_count++) {
        pthread_mutex_init(&l->locks[l->shard_count], NULL);
        pst_holder_init(&l->holders[l->shard_count], NULL);
    }
    return 0;
}

static int follow_another(struct penstock *store, const struct local_settings *settings,
                          const struct penstock_options *options)
{
    const struct penstock_follow_options follow = {.size = sizeof(follow),
                                                   .url = settings->follow,
                                                   .secret_file = options->secret_file,
                                                   .prefix = settings->prefix,
                                                   .prefix_bytes =
                                                       settings->prefix ? strlen(settings->prefix) : 0};

    pst_assert(!store->follow);
    return penstock_follow_open(store, &follow, &store->follow);
}

int pst_local_open(struct penstock *store, const char *query, const struct penstock_options *options)
{
    struct local_settings settings = {0};
    int r = pst_query_read(&local_options, &settings, query);

    if (r == 0)
        r = open_local(store, &settings, options->timeout_ms);
    if (r == 0 && settings.follow)
        r = follow_another(store, &settings, options);
    pst_options_free(&local_options, &settings);
    return r;
}
