/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c: what must be, and what may be. Of an own key a read gives the last acknowledged write and nothing
 * else; of another's a write between the last one acknowledged before the read began and the last one begun
 * when it ended.
 */
#include "churn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FORGET_EVERY = 20 };

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static unsigned long long number(uint64_t x)
{
    return x;
}

/* ---- keys ---- */

static void name_key(struct key *key, uint32_t id)
{
    uint32_t index = id % CLIENT_KEYS, leaf;
    uint64_t hash = 0;

    key->id = id;
    key->client = id / CLIENT_KEYS;
    key->tree = index / LEAVES;
    leaf = index % LEAVES;
    key->cache = leaf >= KEEP_LEAVES;
    key->hot = key->tree == HOT_TREE && leaf == HOT_LEAF;
    key->bytes = (uint16_t)snprintf(key->text, sizeof(key->text), "%c/%u/%u/%u", key->cache ? 'c' : 'k',
                                    key->client, key->tree, leaf);
    if (leaf % 8 == 0) { /* some are long */
        memset(key->text + key->bytes, 'x', (size_t)(KEY_ROOM - key->bytes));
        key->bytes = (uint16_t)(KEY_ROOM - leaf);
    }
    for (uint32_t i = 0; i < key->bytes; i++)
        hash = mix(hash ^ (uint8_t)key->text[i]);
    key->hash = hash;
}

const struct key *ledger_hot(const struct client *c, uint64_t owner)
{
    return &c->keys[owner * CLIENT_KEYS + HOT_TREE * LEAVES + HOT_LEAF];
}

const struct key *ledger_find(const struct client *c, const void *text, size_t bytes)
{
    char line[KEY_ROOM + 1] = "";
    unsigned client, tree, leaf;
    const struct key *key;
    char class;

    if (bytes > KEY_ROOM)
        return NULL;
    memcpy(line, text, bytes);
    if (sscanf(line, "%c/%u/%u/%u", &class, &client, &tree, &leaf) != 4 || client >= c->client_count ||
        tree >= TREES || leaf >= LEAVES)
        return NULL;
    key = &c->keys[client * CLIENT_KEYS + tree * LEAVES + leaf];
    return key->bytes == bytes && memcmp(key->text, text, bytes) == 0 ? key : NULL;
}

int ledger_open(struct client *c, const char *path)
{
    size_t bytes = CLIENTS_MAX * CLIENT_KEYS * sizeof(struct progress);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    c->key_count = c->client_count * CLIENT_KEYS;
    c->keys = calloc(c->key_count, sizeof(*c->keys));
    c->memory = calloc(c->key_count, sizeof(*c->memory));
    c->progress = ftruncate(fd, (off_t)bytes) < 0
                      ? MAP_FAILED
                      : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (!c->keys || !c->memory || c->progress == MAP_FAILED) {
        c->progress = NULL;
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < c->key_count; i++)
        name_key(&c->keys[i], i);
    return 0;
}

void ledger_close(struct client *c)
{
    if (c->progress)
        munmap(c->progress, CLIENTS_MAX * CLIENT_KEYS * sizeof(struct progress));
    free(c->keys);
    free(c->memory);
}

/* ---- reads ---- */

bool ledger_mine(const struct client *c, const struct key *key)
{
    return key->client == c->number;
}

bool ledger_kept(const struct client *c, const struct key *key)
{
    const struct memory *m = &c->memory[key->id];

    return !key->cache || m->hard_pins || m->pinned_until_ms > churn_now_ms();
}

struct sight ledger_sight(const struct client *c, const struct key *key)
{
    const struct progress *p = &c->progress[key->id];

    return (struct sight){.acked = atomic_load(&p->acked), .generation = atomic_load(&p->generation)};
}

/* Return: the order among writes and generations holds. */
static bool in_order(struct client *c, const struct key *key, const struct sight *sight, uint64_t write,
                     uint64_t generation)
{
    const struct memory *m = &c->memory[key->id];
    uint64_t low = at_least(m->floor, sight->acked / 2), high = atomic_load(&c->progress[key->id].begun);

    if (write < low || write > high) {
        churn_violation(c, key, "shows write %llu; %llu to %llu may show", number(write), number(low),
                        number(high));
        return false;
    }
    if (generation < at_least(m->generation, sight->generation)) {
        churn_violation(c, key, "generation %llu after %llu", number(generation),
                        number(at_least(m->generation, sight->generation)));
        return false;
    }
    if (m->generation && (generation == m->generation) != (write == m->generation_from)) {
        churn_violation(c, key, "write %llu has generation %llu, write %llu had %llu", number(write),
                        number(generation), number(m->generation_from), number(m->generation));
        return false;
    }
    return true;
}

void ledger_saw(struct client *c, const struct key *key, const struct sight *sight, uint64_t write,
                uint64_t generation)
{
    struct memory *m = &c->memory[key->id];

    c->counts.checked++;
    if (!in_order(c, key, sight, write, generation)) {
        m->uncertain = true;
        return;
    }
    m->floor = write;
    m->generation = generation;
    m->generation_from = write;
    if (!ledger_mine(c, key) || m->uncertain)
        return;
    if (m->present && m->write == write && m->write_generation == generation)
        return;
    churn_violation(c, key, "shows write %llu, generation %llu; %s %llu, %llu is the last acknowledged",
                    number(write), number(generation), m->present ? "value" : "nothing since",
                    number(m->write), number(m->write_generation));
    m->uncertain = true;
}

void ledger_missed(struct client *c, const struct key *key, const struct sight *sight)
{
    struct memory *m = &c->memory[key->id];

    c->counts.checked++;
    if (ledger_mine(c, key)) {
        if (!m->uncertain && m->present && ledger_kept(c, key))
            churn_violation(c, key, "is gone: write %llu was acknowledged%s", number(m->write),
                            key->cache ? " and is pinned" : "");
        m->present = false;
    } else if (!key->cache && sight->acked & 1 &&
               atomic_load(&c->progress[key->id].delete_begun) <= sight->acked / 2) {
        churn_violation(c, key, "is gone: its owner had write %llu acknowledged and did not delete it",
                        number(sight->acked / 2));
    }
    m->floor = at_least(m->floor, sight->acked / 2 + 1); /* what is gone does not come back */
}

/* ---- writes ---- */

uint64_t ledger_begin(struct client *c, const struct key *key, bool is_delete)
{
    struct progress *p = &c->progress[key->id];
    uint64_t write = atomic_load(&p->begun) + 1;

    if (is_delete)
        atomic_store(&p->delete_begun, write);
    atomic_store(&p->begun, write);
    return write;
}

void ledger_put(struct client *c, const struct key *key, uint64_t write, uint64_t generation)
{
    struct progress *p = &c->progress[key->id];
    struct memory *m = &c->memory[key->id];

    c->counts.checked++;
    if (generation <= m->generation)
        churn_violation(c, key, "write %llu got generation %llu, an earlier one has %llu", number(write),
                        number(generation), number(m->generation));
    if (c->plant == PLANT_WRITE && draw(c, FORGET_EVERY) == 0)
        return;
    m->floor = write;
    m->write = m->generation_from = write;
    m->write_generation = m->generation = generation;
    m->present = true;
    m->uncertain = false;
    atomic_store(&p->generation, generation);
    atomic_store(&p->acked, 2 * write + 1);
}

void ledger_deleted(struct client *c, const struct key *key, uint64_t write)
{
    struct memory *m = &c->memory[key->id];

    c->counts.checked++;
    c->hard_pins -= m->hard_pins;
    m->hard_pins = 0;
    m->more_pins = false;
    m->pinned_until_ms = 0;
    m->floor = m->write = write;
    m->present = false;
    m->uncertain = false;
    atomic_store(&c->progress[key->id].acked, 2 * write);
}
