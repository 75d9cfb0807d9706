/* SPDX-License-Identifier: Apache-2.0 */
/* flips.c: the run `flips`: bits of the SSD's files are turned. */
#include "runs.h"

#include "base/base.h"
#include "base/fault.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEYS = 96,
    SEGMENTS = 48,
    MIB = 1 << 20,
    FLIPS_ANYWHERE = 48,
    ENDS_BYTES = 12288,
    TRIES_MAX = 2000,
};

struct lies { /* where a value is */
    int segment;
    off_t at;
};

struct flips {
    const struct order *order;
    struct keeper k; /* its violations, and what a value looks like */
    struct host h;
    struct penstock *store;
    struct lies lies[KEYS];
    uint8_t *buffer;
    uint64_t flips, detected, anywhere, lost, damaged, reads;
};

static uint32_t version_of(uint32_t key)
{
    uint32_t version = 1000 * (key + 1);

    while (keeper_value_bytes(version) < 4096) /* smaller ones are never on the SSD alone */
        version++;
    return version;
}

static int segment_fd(const struct flips *f, int segment)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/ssd/segment-%05d", f->order->folder, segment);
    fd = open(path, O_RDWR | O_CLOEXEC);
    pst_assert(fd >= 0);
    return fd;
}

static void turn(const struct flips *f, int segment, off_t at, uint64_t bit)
{
    pst_cleanup_close int fd = segment_fd(f, segment);
    uint8_t byte = 0;

    pst_assert(pread(fd, &byte, 1, at) == 1);
    byte ^= (uint8_t)(1u << bit % 8);
    pst_assert(pwrite(fd, &byte, 1, at) == 1);
}

/* ---- the node ---- */

static void begin(struct flips *f)
{
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = 20000};
    char said[200];
    int status, tries = 0;

    host_start(&f->h);
    while (penstock_open(f->k.url, &options, &f->store) < 0) {
        if (!host_lives(&f->h, &status) || ++tries == TRIES_MAX) {
            host_said(&f->h, said, sizeof(said));
            keeper_violation(&f->k, "the node does not begin: %s", said);
            return;
        }
        usleep(5000);
    }
}

static void end(struct flips *f, bool in_order)
{
    f->store = penstock_close(f->store);
    if (f->h.pid && in_order && host_stop(&f->h) != 0)
        keeper_violation(&f->k, "the node did not end in order");
    else if (f->h.pid)
        host_kill(&f->h);
}

/* Return: the get's result; bytes that were never written are a violation. */
static int get(struct flips *f, uint32_t key)
{
    struct penstock_op op = {0};
    char text[24];

    penstock_prep_get(&op, text, keeper_key_text(0, key, text), f->buffer, KEEPER_VALUE_BYTES_MAX);
    penstock_batch(f->store, &op, 1);
    f->reads++;
    if (op.result != 0)
        return op.result;
    if (f->order->plant)
        f->buffer[op.value_bytes / 2] ^= 1;
    if (keeper_read(f->buffer, op.value_bytes, 0, key) != version_of(key))
        keeper_violation(&f->k, "key %u was served with wrong bytes", key);
    return 0;
}

static void put_all(struct flips *f)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        struct penstock_op op = {0};
        char text[24];

        keeper_fill(f->buffer, 0, i, version_of(i));
        penstock_prep_put(&op, text, keeper_key_text(0, i, text), f->buffer,
                          keeper_value_bytes(version_of(i)));
        op.flags = PENSTOCK_DURABLE;
        if (penstock_batch(f->store, &op, 1) != 0)
            keeper_violation(&f->k, "key %u could not be put: %s", i, penstock_result_text(op.result));
    }
}

/* Each value was written once: its first bytes name it. */
static void find_all(struct flips *f)
{
    uint8_t *image = malloc(MIB);

    pst_assert(image);
    for (uint32_t i = 0; i < KEYS; i++)
        f->lies[i].segment = -1;
    for (int segment = 0; segment < SEGMENTS; segment++) {
        pst_cleanup_close int fd = segment_fd(f, segment);

        pst_assert(pread(fd, image, MIB, 0) == MIB);
        for (uint32_t i = 0; i < KEYS; i++) {
            const uint8_t *at;

            keeper_fill(f->buffer, 0, i, version_of(i));
            at = memmem(image, MIB, f->buffer, 64);
            if (at)
                f->lies[i] = (struct lies){segment, at - image};
        }
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        if (f->lies[i].segment < 0)
            keeper_violation(&f->k, "key %u is nowhere on the SSD", i);
    }
    free(image);
}

/* ---- rounds ---- */

/* One bit of each value, while a node runs that has none of them in memory: all are told, none is served, and
 * all are good again once the bits are. */
static void turn_values(struct flips *f, uint64_t round)
{
    uint64_t at[KEYS] = {0}, bit[KEYS] = {0};

    begin(f);
    for (uint32_t i = 0; i < KEYS && f->k.violations == 0; i++) {
        at[i] = dice(f->order, 1, round * KEYS + i) % keeper_value_bytes(version_of(i));
        bit[i] = dice(f->order, 2, round * KEYS + i);
        turn(f, f->lies[i].segment, f->lies[i].at + (off_t)at[i], bit[i]);
        f->flips++;
        if (get(f, i) == -EBADMSG)
            f->detected++;
        else
            keeper_violation(&f->k, "key %u: bit %u of byte %u was not noticed", i, (unsigned)bit[i] % 8,
                             (unsigned)at[i]);
    }
    for (uint32_t i = 0; i < KEYS && f->k.violations == 0; i++) {
        turn(f, f->lies[i].segment, f->lies[i].at + (off_t)at[i], bit[i]);
        if (get(f, i) != 0)
            keeper_violation(&f->k, "key %u is not good again", i);
    }
    end(f, false);
}

/* Anywhere, heads and indexes more than the rest. What the next node has of a key is right, or nothing. */
static void turn_anything(struct flips *f, uint64_t round)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    char command[900];

    snprintf(command, sizeof(command), "rm -rf '%s/kept' && cp -a --sparse=always '%s/ssd' '%s/kept'",
             f->order->folder, f->order->folder, f->order->folder);
    pst_assert(system(command) == 0);
    for (uint64_t i = 0; i < FLIPS_ANYWHERE; i++) {
        uint64_t number = round * FLIPS_ANYWHERE + i, at = dice(f->order, 4, number);
        const struct lies *near = &f->lies[dice(f->order, 3, number) % KEYS];

        at = at % 4 < 2 ? at / 4 % MIB : at % 4 == 2 ? at / 4 % ENDS_BYTES : MIB - 1 - at / 4 % ENDS_BYTES;
        turn(f, near->segment, (off_t)at, dice(f->order, 5, number));
        f->flips++;
        f->anywhere++;
    }
    begin(f);
    for (uint32_t i = 0; i < KEYS && f->k.violations == 0; i++) {
        int r = get(f, i);

        f->lost += r != 0;
        if (r != 0 && r != PENSTOCK_MISS && r != -EBADMSG)
            keeper_violation(&f->k, "key %u is told as '%s'", i, penstock_result_text(r));
    }
    if (f->k.violations == 0 && penstock_stat(f->store, &stat) == 0)
        f->damaged += stat.ssd_corrupt;
    end(f, false);
    snprintf(command, sizeof(command), "rm -rf '%s/ssd' && mv '%s/kept' '%s/ssd'", f->order->folder,
             f->order->folder, f->order->folder);
    pst_assert(system(command) == 0);
}

int run_flips(const struct order *o)
{
    struct flips f = {.order = o, .h = host_of(o), .buffer = malloc(KEEPER_VALUE_BYTES_MAX)};
    uint64_t round = 0;
    char told[300];

    pst_assert(f.buffer);
    keeper_init(&f.k, o->seed, o->plant);
    snprintf(f.k.url, sizeof(f.k.url), "node+unix://%s/socket", o->folder);
    begin(&f);
    put_all(&f);
    end(&f, true);
    find_all(&f);
    for (; goes_on(o, &f.k, round); round++) {
        if (round % 2)
            turn_anything(&f, round);
        else
            turn_values(&f, round);
    }
    snprintf(told, sizeof(told),
             "\"flips\": %llu, \"of_values\": %llu, \"noticed\": %llu, \"anywhere\": %llu, \"lost\": %llu, "
             "\"damaged\": %llu, \"looks\": %llu, ",
             (unsigned long long)f.flips, (unsigned long long)(f.flips - f.anywhere),
             (unsigned long long)f.detected, (unsigned long long)f.anywhere, (unsigned long long)f.lost,
             (unsigned long long)f.damaged, (unsigned long long)f.reads);
    free(f.buffer);
    keeper_fini(&f.k);
    return keeper_tell(&f.k, f.flips, told);
}
