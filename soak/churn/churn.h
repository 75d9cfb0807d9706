/* SPDX-License-Identifier: Apache-2.0 */
/*
 * churn.h: one client of the churn soak. It owns keys that nobody else writes, so it knows what a read of
 * them has to give; and it reads the keys of the others, whose progress it follows in a table that all
 * clients map.
 *
 * Each write of a key has a number, counted by the key's owner. Key and number fix the size of the value and
 * every byte of it, and the number travels as the value's attribute. One thread; all that a client does
 * follows from its seed and from what the store answers.
 */
#ifndef CHURN_H
#define CHURN_H

#include <penstock/penstock.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define count_of(a) (sizeof(a) / sizeof((a)[0]))

enum {
    CLIENTS_MAX = 16,
    TREES = 8, /* of each class, of each client */
    KEEP_LEAVES = 12,
    CACHE_LEAVES = 96,
    LEAVES = KEEP_LEAVES + CACHE_LEAVES,
    CLIENT_KEYS = TREES * LEAVES,
    HOT_TREE = 1, /* one key of each client is large and in much use, so that reads meet its writes */
    HOT_LEAF = 1,
    KEY_ROOM = 256,
    BLOCK_BYTES = 4096,
    VALUE_BYTES_MAX = 3 << 20,
    BATCH_MAX = 8,
    HARD_PINS_MAX = 40,
    HELD_VIEWS_MAX = 12,
    STORES_MAX = 2,
};

struct key {
    uint64_t hash;
    uint32_t id;
    uint32_t client;
    uint32_t tree;
    bool cache;
    bool hot;
    uint16_t bytes;
    char text[KEY_ROOM];
};

/* What the owner tells of a key. Numbers of writes; a delete has one, too. */
struct progress {
    _Atomic uint64_t begun;
    _Atomic uint64_t delete_begun;
    _Atomic uint64_t generation; /* of the last acknowledged put; stored before `acked` */
    _Atomic uint64_t acked;      /* 2 * number + (there is a value) */
};

/* What this client knows of a key; the second half of its own keys only. */
struct memory {
    uint64_t floor;           /* no older write may show up any more */
    uint64_t generation;      /* the newest seen, */
    uint64_t generation_from; /* and the write that it belongs to */
    uint64_t write;
    uint64_t write_generation;
    uint64_t pinned_until_ms;
    uint32_t hard_pins;
    bool present;
    bool uncertain; /* after a violation or an unknown outcome, until the next acknowledged write */
    bool more_pins; /* than hard_pins there may be: the outcome of one is unknown */
};

/* The owner's progress just before an operation began. */
struct sight {
    uint64_t acked;
    uint64_t generation;
};

/* What is planted: one byte of some reads is changed before they are checked; some acknowledged writes are
 * forgotten. */
enum plant { PLANT_NONE, PLANT_BYTE, PLANT_WRITE };

#define COUNTS(X)                                                                                            \
    X(checked)                                                                                               \
    X(violations)                                                                                            \
    X(checked_bytes)                                                                                         \
    X(puts)                                                                                                  \
    X(conditional_puts)                                                                                      \
    X(reads)                                                                                                 \
    X(hits)                                                                                                  \
    X(range_reads)                                                                                           \
    X(key_stats)                                                                                             \
    X(deletes)                                                                                               \
    X(pins)                                                                                                  \
    X(views)                                                                                                 \
    X(views_outlived)                                                                                        \
    X(lists)                                                                                                 \
    X(sweeps)                                                                                                \
    X(no_space)                                                                                              \
    X(busy)                                                                                                  \
    X(unknown)

struct held_view {
    struct penstock_view view;
    const struct key *key; /* NULL: free */
    struct penstock *store;
    uint64_t write;
    uint64_t until_ms;
    bool known; /* `write` is: a view has no attributes, and a tiny value tells nothing */
};

struct client {
    uint32_t number;
    uint32_t client_count;
    uint32_t key_count;
    enum plant plant;
    uint64_t seed;
    uint64_t random;
    uint32_t hard_pins;
    uint32_t store_count;
    struct penstock *stores[STORES_MAX]; /* the first over the unix socket, where views are */
    struct key *keys;
    struct memory *memory;
    struct progress *progress;
    uint8_t *buffers[BATCH_MAX];
    struct held_view held[HELD_VIEWS_MAX];
    struct {
#define X(name) uint64_t name;
        COUNTS(X)
#undef X
    } counts;
};

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* A random number below @limit, which is not 0. */
static inline uint64_t draw(struct client *c, uint64_t limit)
{
    c->random += 0x9e3779b97f4a7c15ull;
    return mix(c->random) % limit;
}

uint64_t churn_now_ms(void);
void churn_violation(struct client *c, const struct key *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* value.c: values that describe themselves */
uint64_t value_bytes(const struct client *c, const struct key *key, uint64_t write);
void value_fill(const struct key *key, uint64_t write, uint8_t *out, uint64_t bytes);
/* Makes sure that bytes which a read does not deliver are seen: every block begins with what no value has. */
void value_poison(uint8_t *buf, uint64_t bytes);
/* Bytes [offset, offset + bytes) of a write; a difference is a violation that says whose bytes they are. */
bool value_check(struct client *c, const struct key *key, uint64_t write, uint64_t offset,
                 const uint8_t *data, uint64_t bytes, const char *through);

/* ledger.c: what must be, and what may be */
int ledger_open(struct client *c, const char *path);
void ledger_close(struct client *c);
bool ledger_mine(const struct client *c, const struct key *key);
/* A key of the client numbered @owner that is in much use. */
const struct key *ledger_hot(const struct client *c, uint64_t owner);
/* NULL: no client owns such a key. */
const struct key *ledger_find(const struct client *c, const void *text, size_t bytes);
/* A key of this client that is there must be found: it is never evicted, or it is pinned. */
bool ledger_kept(const struct client *c, const struct key *key);
struct sight ledger_sight(const struct client *c, const struct key *key);
/* Whether the write that a read gave is one that it may give. */
void ledger_saw(struct client *c, const struct key *key, const struct sight *sight, uint64_t write,
                uint64_t generation);
void ledger_missed(struct client *c, const struct key *key, const struct sight *sight);
/* Return: the number of a write that is about to be sent. */
uint64_t ledger_begin(struct client *c, const struct key *key, bool is_delete);
void ledger_put(struct client *c, const struct key *key, uint64_t write, uint64_t generation);
void ledger_deleted(struct client *c, const struct key *key, uint64_t write);

/* acts.c: batches of one to BATCH_MAX operations, no two on the same key */
void acts_step(struct client *c);

/* walks.c: what concerns many keys */
void walks_list(struct client *c);
void walks_sweep(struct client *c);
/* Deletes all that the client owns. */
void walks_end(struct client *c);

/* views.c */
void views_open(struct client *c);
/* Looks at views once more and releases those whose time is over; with @all, every one. */
void views_tend(struct client *c, bool all);

#endif
