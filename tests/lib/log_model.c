/* SPDX-License-Identifier: Apache-2.0 */
/* model.c: see model.h. */
#include "lib/log_model.h"

#include "base/hash.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

enum {
    WAIT_MS = 60000,
    LOOK_MS = 10,
    PIECE_BYTES = 64 << 10,
    PIECES_MAX = MODEL_VALUE_BYTES_MAX / PIECE_BYTES + 2,
    MOVES_MAX = 8,
    LIVE_PERCENT_MAX = 80,
};

void model_violation(struct model *m, const char *format, ...)
{
    va_list args;

    if (m->table->violations++ > 0)
        return;
    va_start(args, format);
    vsnprintf(m->table->text, sizeof(m->table->text), format, args);
    va_end(args);
}

static uint64_t roll(struct model *m, uint64_t below)
{
    uint64_t number = m->table->rolls++;

    return pst_hash64(&number, sizeof(number), m->seed) % below;
}

/* ---- values: a key and a generation say all about one ---- */

static uint64_t bytes_of(uint64_t generation)
{
    uint64_t dice = generation * 0x9e3779b97f4a7c15ull;

    switch (dice >> 60) {
    case 0 ... 3:
        return dice % 3000;
    case 4 ... 7:
        return 4096 * (dice % 16 + 1);
    case 8 ... 12:
        return dice % 65537;
    default:
        return dice % MODEL_VALUE_BYTES_MAX;
    }
}

static void fill(uint8_t *to, uint64_t bytes, uint64_t generation)
{
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word = (generation + i) * 0x9e3779b97f4a7c15ull;

        memcpy(to + 8 * i, &word, 8);
    }
    memset(to + bytes / 8 * 8, (int)generation, bytes % 8);
}

static bool filled(const uint8_t *at, uint64_t bytes, uint64_t generation)
{
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word = (generation + i) * 0x9e3779b97f4a7c15ull;

        if (memcmp(at + 8 * i, &word, 8) != 0)
            return false;
    }
    for (uint64_t i = bytes / 8 * 8; i < bytes; i++) {
        if (at[i] != (uint8_t)generation)
            return false;
    }
    return true;
}

static struct pst_log_value value_of(uint32_t key, uint64_t generation, char name[16])
{
    snprintf(name, 16, "key-%u", key);
    return (struct pst_log_value){.key = {name, strlen(name)},
                                  .generation = generation,
                                  .value_bytes = bytes_of(generation),
                                  .value_crc = (uint32_t)generation,
                                  .depth = (uint16_t)key};
}

static uint32_t cut(uint8_t *memory, uint64_t bytes, struct iovec iov[PIECES_MAX])
{
    uint32_t count = 0;

    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES)
        iov[count++] = (struct iovec){memory + at, pst_min(bytes - at, PIECE_BYTES)};
    return count;
}

static struct pst_lane *lane_of(struct model *m, uint32_t key)
{
    return pst_log_lane(m->log, key % m->lane_count);
}

/* ---- waiting ---- */

static void take_moved(struct model *m, struct pst_lane *lane, struct pst_log_move *move);

/* Moves that are done are taken care of. Return: whether @wanted is done. */
static bool take_done(struct model *m, struct pst_lane *lane, struct pst_list *done,
                      const struct pst_log_op *wanted)
{
    bool found = false;

    pst_list_each_safe (link, done) {
        struct pst_log_op *op = pst_list_entry(link, struct pst_log_op, link);

        pst_list_remove(link);
        if (op->verb == PST_LOG_MOVE)
            take_moved(m, lane, pst_container_of(op, struct pst_log_move, op));
        else
            found = found || op == wanted;
    }
    return found;
}

/* Polls each lane once, and sleeps if nothing came of it; not for long, as one may wait for a segment of
 * another's, which wakes nobody. Return: whether @wanted is done. */
static bool poll_lanes(struct model *m, const struct pst_log_op *wanted)
{
    const struct pst_turn turn =
        pst_turn_begin(pst_now_ns, 0); /* the same pieces each time, however late it is */
    struct pollfd p[MODEL_LANES_MAX];
    bool found = false, something = false, idle = true;

    for (uint32_t i = 0; i < m->lane_count; i++) {
        struct pst_lane *lane = pst_log_lane(m->log, i);
        struct pst_list done;

        pst_list_init(&done);
        something |= pst_lane_poll(lane, &turn, &done);
        found |= take_done(m, lane, &done, wanted);
        idle = idle && pst_lane_idle(lane);
        p[i] = (struct pollfd){.fd = pst_lane_descriptor(lane), .events = POLLIN};
    }
    m->waited_ms = something || found ? 0 : m->waited_ms + LOOK_MS;
    if (something || found || (idle && !wanted))
        return found;
    if (!idle && m->waited_ms < WAIT_MS) {
        poll(p, m->lane_count, LOOK_MS);
        return false;
    }
    model_violation(m, idle ? "lanes have nothing to do and are waited for" : "lanes wait for each other");
    return true;
}

static int wait_for(struct model *m, const struct pst_log_op *op)
{
    while (!poll_lanes(m, op)) {
    }
    return op->result;
}

static bool all_idle(const struct model *m)
{
    pst_assert(m->log && m->lane_count <= MODEL_LANES_MAX);
    for (uint32_t i = 0; i < m->lane_count; i++) {
        if (!pst_lane_idle(pst_log_lane(m->log, i)))
            return false;
    }
    return true;
}

void model_drain(struct model *m)
{
    while (!all_idle(m) && m->table->violations == 0)
        poll_lanes(m, NULL);
}

/* ---- what may be ---- */

static void came_later(struct model *m, struct model_key *k, uint64_t generation)
{
    pst_assert(k->later_count < MODEL_LATER_MAX);
    k->later[k->later_count] = generation;
    __atomic_store_n(&k->later_count, k->later_count + 1, __ATOMIC_RELEASE);
    (void)m;
}

static void is_durable(struct model_key *k, uint64_t generation)
{
    __atomic_store_n(&k->durable, generation, __ATOMIC_RELEASE);
    k->later_count = 0;
}

static bool may_be(const struct model_key *k, uint64_t generation)
{
    if (generation == k->durable || (generation == 0 && k->later_count > 0))
        return true;
    for (uint32_t i = 0; i < k->later_count; i++) {
        if (k->later[i] == generation)
            return true;
    }
    return false;
}

/* ---- open and close ---- */

static void found_one(struct model *m, const struct pst_log_found *f)
{
    uint32_t key = (uint32_t)atoi((const char *)f->value.key.data + 4);
    struct model_key *k = &m->table->keys[key % MODEL_KEYS];
    char name[16];
    struct pst_log_value v = value_of(key, f->value.generation, name);

    if (key >= MODEL_KEYS || !pst_bytes_equal(v.key, f->value.key) || v.value_bytes != f->value.value_bytes ||
        v.value_crc != f->value.value_crc || v.depth != f->value.depth) {
        model_violation(m, "an entry that was never written: key %u, generation %llu", key,
                        (unsigned long long)f->value.generation);
        return;
    }
    if (k->generation == f->value.generation) {
        pst_log_repeated(m->log, f);
        return;
    }
    pst_log_adopt(m->log, f);
    if (k->generation > f->value.generation) {
        pst_log_delete(lane_of(m, key), &f->value, f->place);
        return;
    }
    if (k->generation > 0) {
        v = value_of(key, k->generation, name);
        pst_log_delete(lane_of(m, key), &v, k->place);
    }
    k->generation = f->value.generation;
    k->place = f->place;
    k->crc = f->crc;
}

static void check_found(struct model *m, bool damage_told)
{
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *k = &m->table->keys[i];

        if (!may_be(k, k->generation)) {
            if (damage_told && m->losses_allowed)
                m->table->lost++;
            else
                model_violation(m, "key %u: generation %llu found, %llu was durable, %u came later", i,
                                (unsigned long long)k->generation, (unsigned long long)k->durable,
                                k->later_count);
        }
        /* From here on what was found is what is; it is durable with the next flush. */
        if (k->later_count == 0 || k->later[k->later_count - 1] != k->generation) {
            k->later[0] = k->generation;
            k->later_count = 1;
        }
    }
}

static void scan(struct model *m)
{
    struct pst_log_scanned told = {0};
    struct pst_log_found found;
    struct pst_log_scan *s = NULL;
    int r = pst_log_scan_open(m->log, &s);

    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        m->table->keys[i].generation = 0;
    while (r == 0 && (r = pst_log_scan_next(s, &found)) == 1) {
        found_one(m, &found);
        r = 0;
    }
    pst_log_scan_close(s, &told);
    if (r < 0)
        model_violation(m, "the scan ended with %d", r);
    check_found(m, told.damaged_groups + told.damaged_values + told.damaged_segments > 0);
}

void model_open(struct model *m)
{
    const char *fault = "";
    struct pst_log_options options = {.folders = &m->folder,
                                      .folder_count = 1,
                                      .bytes = m->segment_bytes * m->segment_count,
                                      .segment_bytes = m->segment_bytes,
                                      .lane_count = (uint32_t)roll(m, MODEL_LANES_MAX) + 1,
                                      .driver = m->driver,
                                      .depth = 16};
    int r = pst_log_open(&options, &m->log, &fault);

    if (r < 0) {
        fprintf(stderr, "%s\n", fault);
        exit(3);
    }
    m->lane_count = options.lane_count;
    m->table->starts++;
    if (m->plant && strcmp(m->plant, "amnesia") == 0 && m->table->starts == 2)
        is_durable(&m->table->keys[0], m->table->generation + 1);
    scan(m);
    m->table->generation = pst_max(m->table->generation, pst_log_generation_floor(m->log));
}

void model_close(struct model *m)
{
    model_drain(m);
    if (all_idle(m)) /* else there is a violation */
        m->log = pst_log_close(m->log);
}

void model_init(struct model *m)
{
    m->memory =
        mmap(NULL, 2 * MODEL_VALUE_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pst_assert(m->memory != MAP_FAILED);
}

void model_fini(struct model *m)
{
    munmap(m->memory, 2 * MODEL_VALUE_BYTES_MAX);
}

/* ---- operations ---- */

static void failed(struct model *m, const char *what, int r)
{
    if (m->failures_allowed && (r == -EIO || r == -ENOSPC))
        m->table->failed++;
    else if (r == -ENOSPC)
        m->table->full++;
    else
        model_violation(m, "%s ended with %d", what, r);
}

static void bury_current(struct model *m, uint32_t key)
{
    struct model_key *k = &m->table->keys[key];
    char name[16];
    struct pst_log_value v = value_of(key, k->generation, name);

    if (k->generation == 0)
        return;
    pst_assert(pst_log_delete(lane_of(m, key), &v, k->place) == 0);
    k->generation = 0;
}

static void put(struct model *m, uint32_t key, bool durable)
{
    struct model_key *k = &m->table->keys[key];
    struct iovec iov[PIECES_MAX];
    struct pst_log_append a = {.durable = durable, .iov = iov};
    uint64_t generation = ++m->table->generation;
    char name[16];
    int r;

    a.value = value_of(key, generation, name);
    a.iov_count = cut(m->memory, a.value.value_bytes, iov);
    fill(m->memory, a.value.value_bytes, generation);
    came_later(m, k, generation);
    while ((r = pst_log_append(lane_of(m, key), &a)) == -EBUSY)
        poll_lanes(m, NULL);
    if (r == 0)
        r = wait_for(m, &a.op);
    if (r < 0) {
        failed(m, "an append", r); /* it is not there, nor after a restart, once a flush says so */
        return;
    }
    bury_current(m, key);
    k->generation = generation;
    k->place = a.place;
    k->crc = a.crc;
    if (durable)
        is_durable(k, generation);
    m->table->durable += durable;
    m->table->puts++;
}

static void delete_key(struct model *m, uint32_t key)
{
    came_later(m, &m->table->keys[key], 0);
    bury_current(m, key);
    m->table->deletes++;
}

static void read_key(struct model *m, uint32_t key)
{
    struct model_key *k = &m->table->keys[key];
    uint8_t *to = m->memory + MODEL_VALUE_BYTES_MAX;
    struct pst_lane *lane = pst_log_lane(m->log, (uint32_t)roll(m, m->lane_count)); /* any reads any place */
    struct iovec iov[PIECES_MAX];
    struct pst_log_read read = {.place = k->place, .crc = k->crc, .iov = iov};
    char name[16];
    int r;

    if (k->generation == 0)
        return;
    read.value = value_of(key, k->generation, name);
    read.bytes = read.value.value_bytes;
    read.iov_count = cut(to, read.bytes, iov);
    memset(to, 0, read.bytes);
    r = pst_log_read(lane, &read);
    if (r == 0)
        r = wait_for(m, &read.op);
    if (m->plant && strcmp(m->plant, "byte") == 0 && read.bytes > 0)
        to[read.bytes / 2] ^= 1;
    if (r == 0 && !filled(to, read.bytes, k->generation))
        model_violation(m, "key %u, generation %llu: wrong bytes", key, (unsigned long long)k->generation);
    if (r == -EBADMSG && m->losses_allowed)
        m->table->lost++;
    else if (r < 0)
        failed(m, "a read", r);
    m->table->reads++;
}

void model_read_all(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_KEYS; i++)
        read_key(m, i);
}

void model_flush(struct model *m)
{
    for (uint32_t i = 0; i < m->lane_count; i++) {
        struct pst_log_sync flush = {0};
        int r;

        pst_log_sync(pst_log_lane(m->log, i), &flush);
        r = wait_for(m, &flush.op);
        if (r < 0)
            failed(m, "a flush", r);
        for (uint32_t key = i; r == 0 && key < MODEL_KEYS; key += m->lane_count)
            is_durable(&m->table->keys[key], m->table->keys[key].generation);
    }
    m->table->flushes++;
}

/* ---- reclaim ---- */

struct moving {
    struct pst_log_move move;
    uint32_t key;
    bool busy;
};

static struct moving moves[MOVES_MAX];

static void take_moved(struct model *m, struct pst_lane *lane, struct pst_log_move *move)
{
    struct moving *g = pst_container_of(move, struct moving, move);
    struct model_key *k = &m->table->keys[g->key];

    g->busy = false;
    if (move->op.result == -EBADMSG && m->losses_allowed) {
        m->table->lost++;
        pst_log_forget(lane, &move->value, move->from);
        k->generation = 0;
        is_durable(k, 0);
        return;
    }
    if (move->op.result < 0) {
        failed(m, "a move", move->op.result);
        return;
    }
    k->place = move->to;
    k->crc = move->crc;
    pst_log_forget(lane, &move->value, move->from);
    m->table->moved++;
}

static bool all_moved(void)
{
    for (uint32_t i = 0; i < MOVES_MAX; i++) {
        if (moves[i].busy)
            return false;
    }
    return true;
}

static void move_one(struct model *m, struct pst_lane *lane, const struct pst_log_found *f, uint32_t key)
{
    struct moving *g = NULL;
    int r = -EBUSY;

    while (!g) {
        for (uint32_t i = 0; i < MOVES_MAX && !g; i++)
            g = moves[i].busy ? NULL : &moves[i];
        if (!g)
            poll_lanes(m, NULL);
    }
    *g = (struct moving){
        .move = {.value = f->value, .from = f->place, .crc = f->crc}, .key = key, .busy = true};
    while ((r = pst_log_move(lane, &g->move)) == -EBUSY)
        poll_lanes(m, NULL);
    g->busy = r == 0;
    if (r < 0)
        failed(m, "a move", r);
}

static void reclaim(struct model *m, uint32_t index)
{
    struct pst_lane *lane = pst_log_lane(m->log, index);
    struct pst_log_found found;
    int r = pst_log_reclaim_begin(lane, LIVE_PERCENT_MAX);

    if (r <= 0)
        return;
    while ((r = pst_log_reclaim_next(lane, &found)) != 0) {
        uint32_t key = 0;

        if (r == -EAGAIN) {
            poll_lanes(m, NULL);
            continue;
        }
        key = (uint32_t)atoi((const char *)found.value.key.data + 4);
        if (lane_of(m, key) == lane && m->table->keys[key].generation == found.value.generation &&
            memcmp(&m->table->keys[key].place, &found.place, sizeof(found.place)) == 0)
            move_one(m, lane, &found, key);
    }
    while (!all_moved())
        poll_lanes(m, NULL);
    pst_log_reclaim_end(lane, PST_LOG_EMPTIED);
}

void model_step(struct model *m)
{
    uint32_t key = (uint32_t)roll(m, MODEL_KEYS);
    uint64_t dice = roll(m, 100);
    struct pst_log_stat stat;

    if (m->table->keys[key].later_count > MODEL_LATER_MAX - 4) {
        model_flush(m);
        if (m->table->keys[key].later_count > MODEL_LATER_MAX - 4)
            return; /* the log is full, or has failed */
    }
    pst_log_stat(m->log, &stat);
    if (stat.segments_free < 2 * MODEL_LANES_MAX)
        reclaim(m, (uint32_t)(dice % m->lane_count));
    if (dice < 40)
        put(m, key, dice < 15);
    else if (dice < 55)
        delete_key(m, key);
    else if (dice < 92)
        read_key(m, key);
    else if (dice < 94)
        model_flush(m);
    else
        reclaim(m, (uint32_t)roll(m, m->lane_count));
}
