/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.h: clients of a store with an SSD and, beside it, what they may find there: of each key what was
 * durable last and all that came later. Each key belongs to one thread, which makes one operation after the
 * other; so a value that is read is right or wrong, at any time.
 *
 * Every byte of a value follows from its key and its version, as does its size. Version 0 is no value.
 */
#ifndef KEEPER_H
#define KEEPER_H

#include <penstock/penstock.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KEEPER_THREADS = 3,
    KEEPER_KEYS = 30, /* of each thread */
    KEEPER_LATER_MAX = 48,
    KEEPER_VALUE_BYTES_MAX = 160 << 10,
    KEEPER_EVENTS = 16,
    KEEPER_TEXT_BYTES = 1000,
};

/* What became of a key lately, told beside a violation. */
struct keeper_event {
    uint32_t epoch, version;
    int result;
    char what; /* p d x g f: put, durable put, delete, get, flush; c: found after a crash */
};

struct keeper_key {
    struct keeper_event events[KEEPER_EVENTS];
    uint32_t event_count;
    uint32_t version; /* given out last */
    uint32_t durable; /* what a crash brings back, or one of `later` */
    uint32_t later[KEEPER_LATER_MAX];
    uint32_t later_count;
    bool crossing;         /* its last write may be one of the next process, in memory alone */
    uint32_t now, or_else; /* what is there; the same unless a write's end was not told */
};

#define KEEPER_COUNTS(X)                                                                                     \
    X(puts)                                                                                                  \
    X(durable)                                                                                               \
    X(deletes)                                                                                               \
    X(reads)                                                                                                 \
    X(flushes)                                                                                               \
    X(verified)                                                                                              \
    X(undone)                                                                                                \
    X(failed)                                                                                                \
    X(full)

struct keeper;

struct keeper_thread {
    struct keeper *keeper;
    uint32_t number;
    uint64_t random;
    struct penstock *store; /* its own, unless the store is embedded */
    uint8_t *buffer;
    uint64_t epoch; /* of the process that it knows */
    bool unsettled; /* something of an earlier process has not been checked yet */
    struct keeper_key keys[KEEPER_KEYS];
    struct {
#define X(name) uint64_t name;
        KEEPER_COUNTS(X)
#undef X
    } counts;
    pthread_t thread;
};

struct keeper {
    char url[700];
    const char *plant;     /* a fault of its own, to be found: "amnesia", "byte" */
    bool failures_allowed; /* the disk fails: -EIO may be told */
    uint64_t seed;
    _Atomic uint64_t epoch;   /* changes once a process has died, before the next one begins */
    _Atomic uint64_t settled; /* threads that have checked all of this epoch */
    _Atomic bool stop;
    struct penstock *shared; /* of an embedded store */
    _Atomic uint64_t violations;
    char text[KEEPER_TEXT_BYTES]; /* of the first */
    struct keeper_thread threads[KEEPER_THREADS];
};

void keeper_init(struct keeper *k, uint64_t seed, const char *plant);
void keeper_fini(struct keeper *k);
/* The threads, until keeper_stop(); with a store of their own each, where none is shared. */
void keeper_start(struct keeper *k);
void keeper_stop(struct keeper *k);
/* The store is a new one, with nothing in it. */
void keeper_reset(struct keeper *k);
/* Tells of a process's end: what is not durable may be gone. */
void keeper_crashed(struct keeper *k);
bool keeper_settled(const struct keeper *k);

void keeper_violation(struct keeper *k, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the figures as one JSON object, after the first violation. Return: an exit status. */
int keeper_tell(const struct keeper *k, uint64_t checked, const char *more);

size_t keeper_key_text(uint32_t thread, uint32_t key, char text[24]);
uint64_t keeper_value_bytes(uint32_t version);
void keeper_fill(uint8_t *to, uint32_t thread, uint32_t key, uint32_t version);
/* Return: the version whose bytes, all of them, @data has; 0: of none. */
uint32_t keeper_read(const uint8_t *data, uint64_t bytes, uint32_t thread, uint32_t key);

static inline uint64_t keeper_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#endif
