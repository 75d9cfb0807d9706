/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes on threads of their own: what they share is the list of segments. */
#include "lib/disk_rig.h"

#include "log/reclaim.h"

#include <pthread.h>

enum {
    MIB = 1 << 20,
    SEGMENTS = 40,
    LANES = 3,
    KEYS = 12,
    WRITES = 500,
    VALUE_BYTES = 96 << 10,
    ALIGN = 4096
};

struct worker {
    struct pst_lane *lane;
    struct pst_log *log;
    pthread_t thread;
    uint32_t index;
    struct pst_log_place places[KEYS];
    uint64_t generations[KEYS];
    uint8_t *memory;
    uint64_t moved;
    bool good;
};

static void name_of(const struct worker *w, uint32_t key, char name[24])
{
    snprintf(name, 24, "%u-%u", w->index, key);
}

static struct pst_log_value value_of(const char *name, uint64_t generation)
{
    return (struct pst_log_value){
        .key = {name, strlen(name)}, .generation = generation, .value_bytes = VALUE_BYTES};
}

static int wait_one(struct worker *w, struct pst_log_op *op)
{
    const struct pst_turn turn = pst_turn_endless();
    struct pst_list done;

    pst_list_init(&done);
    while (pst_list_empty(&done)) {
        struct pollfd p = {.fd = pst_lane_descriptor(w->lane), .events = POLLIN};

        if (!pst_lane_poll(w->lane, &turn, &done) && op)
            poll(&p, 1, RIG_WAIT_MS);
        if (!op)
            break;
    }
    return op ? op->result : 0;
}

static int put(struct worker *w, uint32_t key, uint64_t generation)
{
    struct iovec iov = {w->memory, VALUE_BYTES};
    struct pst_log_append a = {.iov = &iov, .iov_count = 1, .durable = generation % 8 == 0};
    char name[24];
    int r;

    name_of(w, key, name);
    memset(w->memory, (int)(w->index + key + generation), VALUE_BYTES);
    a.value = value_of(name, generation);
    while ((r = pst_log_append(w->lane, &a)) == -EBUSY)
        wait_one(w, NULL);
    if (r == 0)
        r = wait_one(w, &a.op);
    if (r < 0)
        return r;
    a.value = value_of(name, w->generations[key]);
    if (w->generations[key] > 0 && pst_log_delete(w->lane, &a.value, w->places[key]) < 0)
        return -ENOMEM;
    w->generations[key] = generation;
    w->places[key] = a.place;
    return 0;
}

static bool reads_back(struct worker *w, uint32_t key)
{
    struct iovec iov = {w->memory, VALUE_BYTES};
    struct pst_log_read read = {.place = w->places[key], .bytes = VALUE_BYTES, .iov = &iov, .iov_count = 1};
    char name[24];

    name_of(w, key, name);
    read.value = value_of(name, w->generations[key]);
    memset(w->memory, 0, VALUE_BYTES);
    if (pst_log_read(w->lane, &read) < 0 || wait_one(w, &read.op) < 0)
        return false;
    return w->memory[VALUE_BYTES - 1] == (uint8_t)(w->index + key + w->generations[key]);
}

static bool move_one(struct worker *w, const struct pst_log_found *found, uint32_t key)
{
    struct pst_log_move move = {.value = found->value, .from = found->place, .crc = found->crc};
    int r;

    while ((r = pst_log_move(w->lane, &move)) == -EBUSY)
        wait_one(w, NULL);
    if (r < 0 || wait_one(w, &move.op) < 0)
        return false;
    w->places[key] = move.to;
    pst_log_forget(w->lane, &move.value, move.from);
    w->moved++;
    return true;
}

static bool reclaim(struct worker *w)
{
    struct pst_log_found found;
    int r = pst_log_reclaim_begin(w->lane, 90);

    if (r <= 0)
        return r == 0 || r == -EBUSY;
    while ((r = pst_log_reclaim_next(w->lane, &found)) != 0) {
        uint32_t index = 0, key = 0;

        if (r == -EAGAIN) {
            wait_one(w, NULL);
            continue;
        }
        if (sscanf(found.value.key.data, "%u-%u", &index, &key) != 2 || index != w->index)
            continue;
        if (w->generations[key] == found.value.generation && w->places[key].segment == found.place.segment &&
            w->places[key].offset == found.place.offset && !move_one(w, &found, key))
            return false;
    }
    pst_log_reclaim_end(w->lane, PST_LOG_EMPTIED);
    return true;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t full = 0;

    for (uint64_t i = 0; i < WRITES; i++) {
        struct pst_log_stat stat;
        /* A few keys often, the others now and then: those are alive where all else is dead. */
        int r = put(w, (uint32_t)(i % 10 ? i % 4 : 4 + i / 10 % (KEYS - 4)), 1 + i);

        pst_log_stat(w->log, &stat);
        if ((stat.segments_free < SEGMENTS / 2 && !reclaim(w)) || (r < 0 && r != -ENOSPC))
            return NULL;
        full += r == -ENOSPC;
        wait_one(w, NULL);
    }
    while (!pst_lane_idle(w->lane)) /* a reclaim may wait for another lane's readers */
        wait_one(w, NULL);
    for (uint32_t key = 0; key < KEYS; key++) {
        if (w->generations[key] > 0 && !reads_back(w, key))
            return NULL;
    }
    w->good = full < WRITES / 2;
    return NULL;
}

static void lanes_share_segments_only(void **state)
{
    char *folder = rig_folder();
    const char *folders[] = {folder}, *fault = "";
    struct worker workers[LANES] = {0};
    struct pst_log *log = NULL;
    uint64_t moved = 0;

    assert_int_equal(pst_log_open(&(struct pst_log_options){.folders = folders,
                                                            .folder_count = 1,
                                                            .bytes = (uint64_t)SEGMENTS * MIB,
                                                            .segment_bytes = MIB,
                                                            .lane_count = LANES,
                                                            .driver = rig_driver(*state),
                                                            .depth = 8},
                                  &log, &fault),
                     0);
    for (uint32_t i = 0; i < LANES; i++) {
        workers[i] = (struct worker){.lane = pst_log_lane(log, i),
                                     .log = log,
                                     .index = i,
                                     .memory = aligned_alloc(ALIGN, VALUE_BYTES)};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        pthread_join(workers[i].thread, NULL);
        free(workers[i].memory);
        moved += workers[i].moved;
    }
    for (uint32_t i = 0; i < LANES; i++)
        assert_true(workers[i].good);
    assert_true(moved > 0);
    pst_log_close(log);
    rig_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"io_uring", lanes_share_segments_only, NULL, NULL, "io_uring"},
        {"posix", lanes_share_segments_only, NULL, NULL, "posix"},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
