/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: the keys of guests: by name, and by owner in the order of their last use. */
#include "directory/guest/guests_priv.h"

int keys_init(struct keys *keys, uint64_t count_max, uint32_t owner_count, uint64_t seed)
{
    uint64_t heads = 1024;

    pst_assert(count_max > 0);
    pst_assert(owner_count > 0);
    while (heads < count_max)
        heads *= 2;
    *keys = (struct keys){
        .head_mask = heads - 1, .count_max = count_max, .seed = seed, .owner_count = owner_count};
    keys->heads = calloc(heads, sizeof(*keys->heads));
    keys->owners = calloc(owner_count, sizeof(*keys->owners));
    if (!keys->heads || !keys->owners)
        return -ENOMEM;
    for (uint32_t i = 0; i < owner_count; i++) {
        pst_list_init(&keys->owners[i].places);
        pst_list_init(&keys->owners[i].old);
    }
    return 0;
}

static struct key **link_of(const struct keys *keys, struct pst_bytes name, uint64_t hash)
{
    struct key **at = &keys->heads[hash & keys->head_mask];

    pst_assert(keys->heads);
    while (*at && ((*at)->hash != hash ||
                   !pst_bytes_equal((struct pst_bytes){(*at)->name, (*at)->name_bytes}, name)))
        at = &(*at)->next;
    return at;
}

static uint64_t hash_of(const struct keys *keys, struct pst_bytes name)
{
    pst_assert(name.data || name.len == 0);
    return pst_hash64(name.data, name.len, keys->seed);
}

struct key *keys_find(const struct keys *keys, struct pst_bytes name)
{
    struct key *key = *link_of(keys, name, hash_of(keys, name));

    pst_assert(!key || key->places);
    return key;
}

static struct place **place_of(struct key *key, uint32_t owner)
{
    struct place **at = &key->places;

    pst_assert(key);
    while (*at && (*at)->owner != owner)
        at = &(*at)->next;
    return at;
}

/* Takes the place out of its key, and the key out of the table if it was its last one. */
static void forget(struct keys *keys, struct place **at)
{
    struct place *place = *at;
    struct key *key = place->key;

    pst_assert(keys->count > 0);
    pst_assert(place->owner < keys->owner_count);
    *at = place->next;
    pst_list_remove(&place->link);
    keys->count--;
    free(place);
    if (key->places)
        return;
    *link_of(keys, (struct pst_bytes){key->name, key->name_bytes}, key->hash) = key->next;
    free(key);
}

static struct key *key_open(struct keys *keys, struct pst_bytes name, uint64_t hash)
{
    struct key **head = &keys->heads[hash & keys->head_mask];
    struct key *key = malloc(sizeof(*key) + name.len);

    pst_assert(name.len > 0);
    pst_assert(name.len <= PST_GUEST_KEY_BYTES_MAX);
    if (!key)
        return NULL;
    *key = (struct key){.next = *head, .hash = hash, .name_bytes = (uint16_t)name.len};
    memcpy(key->name, name.data, name.len);
    *head = key;
    return key;
}

int keys_add(struct keys *keys, struct pst_bytes name, uint32_t owner, uint64_t bytes)
{
    uint64_t hash = hash_of(keys, name);
    struct key *key = *link_of(keys, name, hash);
    struct place **at = key ? place_of(key, owner) : NULL, *place = at ? *at : NULL;

    pst_assert(keys->count <= keys->count_max);
    pst_assert(owner < keys->owner_count);
    if (name.len == 0 || name.len > PST_GUEST_KEY_BYTES_MAX)
        return -ENAMETOOLONG;
    if (place) {
        place->bytes = bytes;
        place->round = keys->owners[owner].round;
        pst_list_remove(&place->link); /* it may be an old one */
        pst_list_push_back(&keys->owners[owner].places, &place->link);
        return 0;
    }
    if (keys->count == keys->count_max && keys_drop_old(keys, owner, 1) == 0)
        return -ENOSPC;
    place = malloc(sizeof(*place));
    if (place && !key)
        key = key_open(keys, name, hash);
    if (!place || !key) {
        free(place);
        return -ENOMEM;
    }
    *place = (struct place){
        .next = key->places, .key = key, .bytes = bytes, .owner = owner, .round = keys->owners[owner].round};
    key->places = place;
    pst_list_push_back(&keys->owners[owner].places, &place->link);
    keys->count++;
    pst_assert(keys->count <= keys->count_max);
    return 0;
}

void keys_remove(struct keys *keys, struct pst_bytes name, uint32_t owner)
{
    struct key *key = keys_find(keys, name);
    struct place **at = key ? place_of(key, owner) : NULL;

    pst_assert(owner < keys->owner_count);
    if (at && *at)
        forget(keys, at);
}

void keys_use(struct keys *keys, struct key *key)
{
    pst_assert(key->places);
    for (struct place *place = key->places; place; place = place->next) {
        pst_assert(place->key == key);
        if (!keys_count_place(keys, place))
            continue;
        pst_list_remove(&place->link);
        pst_list_push_back(&keys->owners[place->owner].places, &place->link);
    }
}

void keys_age(struct keys *keys, uint32_t owner)
{
    pst_assert(owner < keys->owner_count);
    keys->owners[owner].round++;
    pst_list_splice(&keys->owners[owner].old, &keys->owners[owner].places);
    pst_assert(pst_list_empty(&keys->owners[owner].places));
}

uint32_t keys_drop_old(struct keys *keys, uint32_t owner, uint32_t max)
{
    struct pst_list *old = &keys->owners[owner].old;
    uint32_t count = 0;

    pst_assert(owner < keys->owner_count);
    for (; count < max && !pst_list_empty(old); count++) {
        struct place *place = pst_list_first(old, struct place, link);

        pst_assert(place->owner == owner);
        forget(keys, place_of(place->key, owner));
    }
    return count;
}

void keys_fini(struct keys *keys)
{
    pst_assert(keys->count <= keys->count_max);
    for (uint32_t i = 0; keys->owners && i < keys->owner_count; i++) {
        keys_age(keys, i);
        keys_drop_old(keys, i, UINT32_MAX);
    }
    pst_assert(keys->count == 0);
    free(keys->owners);
    free(keys->heads);
}
