/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor.h: one client of the fault soaks. It puts, gets and deletes a few keys that all actors share, looks
 * at values in place, and writes down what it asked, what it was told and when: a history that outlives it,
 * since it lies in a mapped file.
 *
 * A value names its key and its write and every byte follows from the two, so that a torn one is seen at
 * once; whether a whole one may be there is for those to say who read all histories. One thread acts; a
 * second one only measures how long the process did not run.
 */
#ifndef ACTOR_H
#define ACTOR_H

#include <penstock/penstock.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define count_of(a) (sizeof(a) / sizeof((a)[0]))

enum {
    KEYS = 16, /* odd ones are of the class that is evicted */
    BATCH_MAX = 8,
    VALUE_BYTES_MAX = 1 << 20,
    HELD_VIEWS_MAX = 6,
    RECORDS_MAX = 1 << 19,
    TOLD_MAX = 8,
    TOLD_BYTES = 200,
};

/* How large a value is: part of its number. */
enum value_class { VALUE_SMALL, VALUE_MIDDLE, VALUE_LARGE, VALUE_CLASSES };

/* What this actor does most. */
enum focus { FOCUS_ALL, FOCUS_SMALL, FOCUS_LARGE, FOCUS_GET, FOCUS_BATCH, FOCUS_VIEW };

/* What is planted: a read byte is changed; an older value is told as read; a write is told that was never
 * made; a view is looked at as if it were of another write; an operation is told to have ended late. */
enum plant { PLANT_NONE, PLANT_TORN, PLANT_STALE, PLANT_LOST, PLANT_VIEW, PLANT_LATE };

/* One operation, 48 bytes, written before it is sent and completed when it has ended. Times: CLOCK_MONOTONIC.
 */
struct record {
    uint64_t begun_ns;
    uint64_t ended_ns; /* 0: its end was never seen */
    uint64_t write;    /* the value written or read */
    uint64_t generation;
    uint64_t if_generation;
    int32_t result;
    uint16_t key;
    uint8_t code;
    uint8_t flags;
};

#define COUNTS(X)                                                                                            \
    X(checked)                                                                                               \
    X(violations)                                                                                            \
    X(checked_bytes)                                                                                         \
    X(puts)                                                                                                  \
    X(gets)                                                                                                  \
    X(hits)                                                                                                  \
    X(deletes)                                                                                               \
    X(fillers)                                                                                               \
    X(views)                                                                                                 \
    X(view_looks)                                                                                            \
    X(unknown)                                                                                               \
    X(busy)                                                                                                  \
    X(no_space)                                                                                              \
    X(not_reached)                                                                                           \
    X(underway) /* what an actor that was killed was doing: enum focus; 0: nothing */

/* The file: this, then the records from RECORDS_AT on. */
struct history {
    _Atomic uint64_t record_count;
    struct {
#define X(name) uint64_t name;
        COUNTS(X)
#undef X
    } counts;
    char told[TOLD_MAX][TOLD_BYTES]; /* the first violations */
};

enum { RECORDS_AT = 4096 };
_Static_assert(sizeof(struct history) <= RECORDS_AT, "a page holds the head");
_Static_assert(sizeof(struct record) == 48, "as the reader has it");

struct held_view {
    struct penstock_view view;
    uint64_t write;
    uint64_t until_ns;
    uint16_t key;
    bool held;
};

struct actor {
    uint32_t number;
    uint32_t timeout_ms;
    uint32_t pause_us;
    enum focus focus;
    enum plant plant;
    bool calm; /* nothing disturbs this one: every operation must succeed */
    bool pool; /* of many nodes: odd keys lie anywhere, even ones at home */
    bool views;
    uint64_t random;
    uint64_t writes;
    uint64_t reads;
    struct penstock *store;
    struct history *history;
    struct record *records;
    uint64_t seen[KEYS];       /* the last generation that it was told of each key */
    struct record early[KEYS]; /* a read of long ago, for PLANT_STALE */
    struct held_view held[HELD_VIEWS_MAX];
    uint8_t *buffers[BATCH_MAX];
};

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* A random number below @limit, which is not 0. */
static inline uint64_t draw(struct actor *a, uint64_t limit)
{
    a->random += 0x9e3779b97f4a7c15ull;
    return mix(a->random) % limit;
}

/* history.c: what outlives the process, and its clock */
int history_open(struct actor *a, const char *path);
/* The next record, its time taken; NULL when there is no room for @count more. */
struct record *history_begin(struct actor *a, uint32_t count);
void violation(struct actor *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t now_ns(void);
/* Begins to measure how long this process is kept from running; only a process that runs can be late. */
int pulse_start(void);
uint64_t pulse_stalled_ns(void);

/* value.c: values that describe themselves */
uint64_t value_number(struct actor *a, enum value_class class);
uint64_t value_bytes(uint64_t write);
void value_fill(uint16_t key, uint64_t write, uint8_t *out);
/* Return: the number of the write whose bytes, all of them, @data has; 0 when it is no whole value of @key.
 */
uint64_t value_read(uint16_t key, const uint8_t *data, uint64_t bytes);

/* acts.c: what it does */
size_t key_text(uint16_t key, char text[32]);
void acts_step(struct actor *a);

/* views.c: values looked at in place */
void views_open(struct actor *a);
/* Looks again and releases those whose time is over; with @all, every one. */
void views_tend(struct actor *a, bool all);

#endif
