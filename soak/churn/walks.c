/* SPDX-License-Identifier: Apache-2.0 */
/* walks.c: what concerns many keys: listings, and the deleting of a tree. */
#include "churn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_TRIES = 10 };

/* A listing underway: what was known of each key when it began, and which were there. */
struct listing {
    struct sight *sights;
    bool *found;
    char prefix[32];
    size_t prefix_bytes;
    uint8_t last[KEY_ROOM];
    size_t last_bytes;
};

static int compare(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static bool in_listing(const struct listing *l, const struct key *key)
{
    return key->bytes >= l->prefix_bytes && memcmp(key->text, l->prefix, l->prefix_bytes) == 0;
}

static void see_entry(struct client *c, struct listing *l, const struct penstock_entry *entry)
{
    const struct key *key = ledger_find(c, entry->key, entry->key_bytes);
    const struct memory *m = key ? &c->memory[key->id] : NULL;

    if (!key && entry->key_bytes && *(const char *)entry->key == 'h')
        return; /* of the soak hostile_requests: others use the node, too */
    if (!key || !in_listing(l, key) || compare(l->last, l->last_bytes, entry->key, entry->key_bytes) >= 0) {
        churn_violation(c, key, "a listing of '%s' gives an entry of %zu bytes that is out of place",
                        l->prefix, entry->key_bytes);
        return;
    }
    memcpy(l->last, entry->key, entry->key_bytes);
    l->last_bytes = entry->key_bytes;
    l->found[key->id] = true;
    c->counts.checked++;
    if (entry->generation < l->sights[key->id].generation || !!entry->cache != key->cache)
        churn_violation(c, key, "listed with generation %llu, class %d",
                        (unsigned long long)entry->generation, entry->cache);
    if (!ledger_mine(c, key) || m->uncertain)
        return;
    if (!m->present || entry->generation != m->write_generation ||
        entry->value_bytes != value_bytes(c, key, m->write)) {
        churn_violation(c, key, "listed with generation %llu of %llu bytes; %s write %llu, generation %llu",
                        (unsigned long long)entry->generation, (unsigned long long)entry->value_bytes,
                        m->present ? "it is" : "nothing since", (unsigned long long)m->write,
                        (unsigned long long)m->write_generation);
        c->memory[key->id].uncertain = true;
    }
}

static void list_all(struct client *c, struct listing *l)
{
    struct penstock_list_options options = {
        .size = sizeof(options), .prefix = l->prefix, .prefix_bytes = l->prefix_bytes};
    uint32_t left = c->key_count + 1;
    struct penstock_entry entry;
    struct penstock_list *list;
    int r = penstock_list_open(c->stores[draw(c, c->store_count)], &options, &list);

    if (r) {
        churn_violation(c, NULL, "a listing of '%s': %s", l->prefix, penstock_error());
        return;
    }
    while ((r = penstock_list_next(list, &entry)) > 0 && --left > 0)
        see_entry(c, l, &entry);
    if (r)
        churn_violation(c, NULL, "a listing of '%s' does not end well: %d", l->prefix, r);
    penstock_list_close(list);
    for (uint32_t i = 0; r == 0 && i < c->key_count; i++) {
        if (!l->found[i] && in_listing(l, &c->keys[i]))
            ledger_missed(c, &c->keys[i], &l->sights[i]);
    }
}

void walks_list(struct client *c)
{
    struct listing l = {.sights = calloc(c->key_count, sizeof(*l.sights)),
                        .found = calloc(c->key_count, sizeof(*l.found))};
    char class = draw(c, 2) ? 'k' : 'c';

    switch (draw(c, 3)) {
    case 0: /* a tree of its own */
        snprintf(l.prefix, sizeof(l.prefix), "%c/%u/%u/", class, c->number, (unsigned)draw(c, TREES));
        break;
    case 1: /* all of somebody's */
        snprintf(l.prefix, sizeof(l.prefix), "%c/%u/", class, (unsigned)draw(c, c->client_count));
        break;
    default: /* everything */
        break;
    }
    l.prefix_bytes = strlen(l.prefix);
    for (uint32_t i = 0; l.sights && i < c->key_count; i++)
        l.sights[i] = ledger_sight(c, &c->keys[i]);
    if (l.sights && l.found)
        list_all(c, &l);
    c->counts.lists++;
    free(l.sights);
    free(l.found);
}

/* Deletes the client's keys with a prefix that covers trees [first, end) of one class. Return: false, as far
 * as the client knows it is not done. */
static bool sweep(struct client *c, bool cache, uint32_t first, uint32_t end, const char *prefix)
{
    uint64_t writes[CLIENT_KEYS] = {0}, least = 0, most = 0, deleted = 0;
    const struct key *mine = &c->keys[c->number * CLIENT_KEYS];
    bool sure = true;
    int r;

    for (uint32_t i = first * LEAVES; i < end * LEAVES; i++) {
        if (mine[i].cache == cache)
            writes[i] = ledger_begin(c, &mine[i], true);
    }
    r = penstock_delete_prefix(c->stores[draw(c, c->store_count)], prefix, strlen(prefix), &deleted);
    if (r == PENSTOCK_UNKNOWN) {
        c->counts.unknown++;
        for (uint32_t i = first * LEAVES; i < end * LEAVES; i++)
            c->memory[mine[i].id].uncertain |= mine[i].cache == cache;
        return false;
    }
    if (r != 0) {
        churn_violation(c, NULL, "delete_prefix '%s': %s", prefix, penstock_error());
        return true;
    }
    for (uint32_t i = first * LEAVES; i < end * LEAVES; i++) {
        const struct memory *m = &c->memory[mine[i].id];

        if (mine[i].cache != cache)
            continue;
        least += m->present && ledger_kept(c, &mine[i]);
        most += m->present;
        sure = sure && !m->uncertain;
        ledger_deleted(c, &mine[i], writes[i]);
    }
    if (sure && (deleted < least || deleted > most))
        churn_violation(c, NULL, "delete_prefix '%s' deleted %llu keys; it had %llu to %llu", prefix,
                        (unsigned long long)deleted, (unsigned long long)least, (unsigned long long)most);
    c->counts.sweeps++;
    return true;
}

void walks_sweep(struct client *c)
{
    uint32_t tree = (uint32_t)draw(c, TREES);
    bool cache = draw(c, 2);
    char prefix[32];

    snprintf(prefix, sizeof(prefix), "%c/%u/%u/", cache ? 'c' : 'k', c->number, tree);
    sweep(c, cache, tree, tree + 1, prefix);
}

void walks_end(struct client *c)
{
    char prefix[32];

    for (int cache = 0; cache < 2; cache++) {
        snprintf(prefix, sizeof(prefix), "%c/%u/", cache ? 'c' : 'k', c->number);
        for (int tries = 0; tries < SWEEP_TRIES && !sweep(c, cache, 0, TREES, prefix); tries++)
            continue;
    }
}
