/* SPDX-License-Identifier: Apache-2.0 */
/* lead.c: a master that has taken the pool map: its directory, and how pool maps are stored before anyone
 * hears of them. All of it is the master's thread, or its opener's, with the lock held. */
#include "master/master_priv.h"
#include "master/stored.h"

#include "base/clock.h"
#include "base/ms.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum {
    POLL_MS = 500,   /* between two looks whether the pool map can be taken, */
    RETRY_MS = 1000, /* and behind what has failed */
    EPOCHS_A_SECOND_BITS = 20,
};

/* ---- pool maps ---- */

/* Others get in between. */
static void revoke_all(struct pst_master *m, uint32_t member)
{
    pst_assert(member < m->members_max);
    while (pst_external_revoke_node(m->external, member, PST_POOL_REVOKE_MAX) == PST_POOL_REVOKE_MAX) {
        pthread_mutex_unlock(&m->lock);
        pthread_mutex_lock(&m->lock);
    }
}

/* Members that came or went with the pool map; what engines told of those that went goes too. */
void pst_lead_follow_map(struct pst_master *m)
{
    const struct pst_map *map = pst_directory_map(m->directory);

    pst_assert(map->members_max == m->members_max);
    for (uint32_t i = 0; i < m->members_max; i++) {
        const struct pst_map_member *member = &map->members[i];
        uint64_t epoch = member->gone ? 0 : member->epoch;

        if (m->external_epochs[i] == epoch)
            continue;
        if (m->external_epochs[i]) {
            revoke_all(m, i);
            pst_master_log(m, "member %u ended", i);
        }
        if (epoch)
            pst_master_log(m, "member %u is %s%s%s, epoch %" PRIu64, i, member->address,
                           *member->address ? "" : "unix:", *member->address ? "" : member->unix_path, epoch);
        m->external_epochs[i] = epoch;
    }
    for (uint32_t i = 1; i < PST_MAP_SHARES_MAX; i++) {
        uint64_t start = i < map->share_count ? map->shares[i].start : 0;

        if (start && m->share_starts[i] != start)
            pst_master_log(m, "share %u of the directory is with %s", i, map->shares[i].address);
        m->share_starts[i] = start;
    }
}

/* Partitions whose keys nobody can be asked for: when they are more than they were, and when there are none
 * again.
 */
static void tell_of_partitions(struct pst_master *m)
{
    const struct pst_map *map = pst_directory_map(m->directory);
    uint32_t incomplete = 0;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        incomplete +=
            map->partitions[i].state == PST_MAP_INCOMPLETE && !pst_map_partition_dealt(&map->partitions[i]);
    if (incomplete > m->partitions_incomplete)
        pst_master_log(m, "none of the nodes that had the keys of %u of %u partitions is there", incomplete,
                       PST_PARTITIONS);
    else if (m->partitions_incomplete > 0 && incomplete == 0)
        pst_master_log(m, "all partitions have a node again");
    m->partitions_incomplete = incomplete;
}

/* The next pool map as bytes, with its end behind them. */
static void begin_storing(struct pst_master *m)
{
    m->storing_bytes = pst_directory_store_begin(m->directory, m->map_next, m->map_room, &m->storing_version);
    pst_assert(m->storing_bytes > 0);
    pst_assert(m->storing_bytes + PST_STORED_END_BYTES <= m->map_room);
    pst_stored_put_end(m->map_next + m->storing_bytes, pst_directory_lease_ms(m->directory, pst_now_ns()));
}

/* Others get in while the keeper works. Return: 0 or -errno. */
static int store_map(struct pst_master *m)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_keeper *keeper = m->keeper;
    int r;

    pst_assert(m->map_next != m->map);
    if (!m->storing_bytes)
        begin_storing(m);
    pthread_mutex_unlock(&m->lock);
    r = keeper->ops->swap(keeper, m->storing_version - 1, m->storing_version,
                          (struct pst_bytes){m->map_next, m->storing_bytes + PST_STORED_END_BYTES}, fault);
    pthread_mutex_lock(&m->lock);
    if (r < 0) {
        if (!m->failing)
            pst_master_log(m, "pool map %" PRIu64 " could not be stored, and changes nothing: %s",
                           m->storing_version, fault);
        m->failing = true;
        return r;
    }
    m->failing = false;
    m->storing_bytes = 0;
    pst_directory_stored(m->directory, m->storing_version, pst_now_ns());
    m->map_bytes = pst_map_encode(pst_directory_map(m->directory), m->map, m->map_room);
    pst_assert(pst_directory_map(m->directory)->version == m->storing_version);
    pst_lead_follow_map(m);
    tell_of_partitions(m);
    return 0;
}

/* Nobody is answered before the pool map is stored that this directory begins with. */
static void tell_of_pool(struct pst_master *m)
{
    char name[PST_ID_TEXT_BYTES];

    pst_assert(m->map_bytes > 0);
    pst_assert(!m->begun);
    pst_id_print(&pst_directory_map(m->directory)->pool, name);
    pst_master_log(m, "this is pool %s", name);
    m->begun = true;
}

int pst_lead_store(struct pst_master *m)
{
    int r = 0;

    while (r == 0 && !m->stopping && (m->storing_bytes || pst_directory_unstored(m->directory)))
        r = store_map(m);
    if (r == -ESTALE)
        pst_lead_end(m);
    else if (r < 0)
        m->retry_ns = pst_deadline_ns(pst_now_ns(), RETRY_MS);
    else if (!m->begun && !m->stopping)
        tell_of_pool(m);
    return r;
}

/* ---- beginning ---- */

/* Goes on as the pool that the operator names, unless that is done already. */
static int adopt(struct pst_master *m, const char *name, char *fault)
{
    char own[PST_ID_TEXT_BYTES];
    struct pst_id pool;
    int r = pst_id_parse(name, &pool);

    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "adopt: '%.100s' is not a pool's name, %zu hexadecimal digits", name,
                 2 * sizeof(pool));
        return r;
    }
    /* Whatever the pool had counted to when its pool map was lost, this is more. */
    r = pst_directory_adopt(m->directory, &pool, (uint64_t)time(NULL) << EPOCHS_A_SECOND_BITS);
    pst_id_print(&pst_directory_map(m->directory)->pool, own);
    if (r < 0)
        snprintf(
            fault, PST_FAULT_BYTES,
            "adopt: the pool map has members of pool %s: to go on as another one begin with another file",
            own);
    return r;
}

static int open_directory(struct pst_master *m, struct pst_bytes stored, char *fault)
{
    const struct pst_master_settings *settings = m->settings;
    uint64_t lease_ms = pst_stored_take_end(&stored);
    struct pst_id pool;
    int r;

    pst_random(&pool, sizeof(pool));
    r = pst_directory_open(&settings->directory, stored, &pool, pst_now_ns(), &m->directory);
    if (r == -EPROTONOSUPPORT)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s has a format that this program does not know",
                 m->keeper->name);
    else if (r == -E2BIG)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s has more members than members_max",
                 m->keeper->name);
    else if (r == -EBADMSG)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s is damaged, or not a pool map", m->keeper->name);
    else if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "directory: %s", strerror(-r));
    else
        pst_directory_succeed(m->directory, pst_deadline_ns(pst_now_ns(), m->keeper->grace_ms), lease_ms);
    return r == 0 && settings->adopt ? adopt(m, settings->adopt, fault) : r;
}

int pst_lead_open_external(struct pst_master *m)
{
    const struct pst_guest_settings *guests = &m->settings->guests;
    uint32_t guests_max = m->settings->has_guests ? (uint32_t)guests->umbp_nodes : 0;
    const struct pst_external_settings external = {.nodes_max = m->members_max + guests_max,
                                                   .entries_max = (uint32_t)m->settings->blocks_max,
                                                   .hits_max = (uint32_t)m->settings->block_hits_max,
                                                   .hit_ttl_ns = pst_ns_of_ms(m->settings->block_hit_ttl_ms)};

    uint64_t seed;
    int r = pst_external_open(&external, &m->external);

    pst_assert(!m->guests);
    pst_random(&seed, sizeof(seed));
    if (r == 0 && guests_max > 0)
        r = pst_guests_open(guests, m->external, m->members_max, seed, pst_now_ns(), &m->guests);
    return r;
}

/* "PREFIX=home", "PREFIX=anywhere:2". */
static int read_place(struct pst_directory *d, const char *text, char *fault)
{
    static const char *const words[] = {[PST_PLACE_ANYWHERE] = "anywhere", [PST_PLACE_HOME] = "home"};
    const char *equals = strrchr(text, '='), *word = equals ? equals + 1 : "", *end;
    uint64_t copies = 1, version;
    size_t len = strcspn(word, ":");
    int r = -EINVAL;

    for (uint32_t i = 0; i < pst_count_of(words); i++) {
        bool named = len == strlen(words[i]) && strncmp(word, words[i], len) == 0;

        if (named && (!word[len] || (pst_parse_digits(word + len + 1, &end, &copies) == 0 && !*end)))
            r = pst_directory_place(d, (struct pst_bytes){text, (size_t)(equals - text)}, i,
                                    (uint32_t)pst_min(copies, UINT32_MAX), &version);
    }
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES,
                 "place '%.150s': PREFIX=home or PREFIX=anywhere, with :COPIES behind it; "
                 "%d prefixes at the most",
                 text, PST_MAP_PREFIXES_MAX);
    return r;
}

/* With the pool map that was taken. */
static int begin(struct pst_master *m, struct pst_bytes stored, char *fault)
{
    const struct pst_master_settings *settings = m->settings;
    int r;

    pst_assert(!m->directory);
    pst_assert(!m->external);
    pst_assert(!m->begun);
    pst_assert(!m->storing_bytes);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    r = pst_lead_open_external(m);
    if (r == 0)
        r = open_directory(m, stored, fault);
    if (r == 0 && !pst_map_prefix_of(pst_directory_map(m->directory), (struct pst_bytes){"", 0}))
        r = read_place(m->directory, "=home", fault);
    for (uint32_t i = 0; i < settings->place.count && r == 0; i++)
        r = read_place(m->directory, settings->place.items[i], fault);
    if (r == 0)
        m->takeovers++;
    else
        pst_lead_end(m);
    return r;
}

void pst_lead_end(struct pst_master *m)
{
    pst_assert(m->magic == PST_MASTER_MAGIC);
    if (m->begun && !m->stopping)
        pst_master_log(m, "this master leads no more");
    m->directory = pst_directory_close(m->directory);
    m->guests = pst_guests_close(m->guests);
    m->external = pst_external_close(m->external);
    memset(m->external_epochs, 0, m->members_max * sizeof(*m->external_epochs));
    m->map_bytes = m->storing_bytes = 0;
    m->partitions_incomplete = 0;
    m->begun = m->failing = false;
}

/* What a keeper said that gave nothing. */
static void stay_behind(struct pst_master *m, int r, const char *fault)
{
    bool others = r == PST_KEEPER_OTHERS;

    m->retry_ns = pst_deadline_ns(pst_now_ns(), others ? POLL_MS : RETRY_MS);
    if (others && strcmp(m->leader, fault) != 0)
        pst_master_log(m, "the pool's master is %s, and this one a standby", fault);
    snprintf(m->leader, sizeof(m->leader), "%.*s", others ? (int)sizeof(m->leader) - 1 : 0, fault);
}

int pst_lead_take(struct pst_master *m, char fault[PST_FAULT_BYTES])
{
    struct pst_bytes stored = {NULL, 0};
    struct pst_keeper *keeper = m->keeper;
    int r;

    pthread_mutex_unlock(&m->lock);
    r = keeper->ops->take(keeper, m->map_room, &stored, fault);
    pthread_mutex_lock(&m->lock);
    if (r == PST_KEEPER_SAME || r == PST_KEEPER_GONE) { /* nobody has led meanwhile: all is as it was */
        pst_assert(m->directory); /* without it a pool would begin here, in place of the one that is there */
        if (r == PST_KEEPER_GONE)
            pst_directory_store_again(m->directory);
        r = 0;
    } else if (r == 0) {
        pst_lead_end(m);
        r = begin(m, stored, fault);
        if (r < 0)
            keeper->ops->give(keeper);
    }
    free((void *)(uintptr_t)stored.data);
    if (r != 0)
        stay_behind(m, r, fault);
    else
        *m->leader = '\0';
    return r;
}

void pst_lead_step(struct pst_master *m)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_hold hold = m->keeper->ops->hold(m->keeper, NULL);
    int r;

    if (m->begun && hold.gone && !m->storing_bytes && !pst_directory_unstored(m->directory))
        pst_directory_store_again(m->directory);
    if ((m->directory && !hold.lost) || pst_now_ns() < m->retry_ns)
        return;
    r = pst_lead_take(m, fault);
    if (r < 0 && r != m->untaken)
        pst_master_log(m, "the pool map cannot be taken: %s", fault);
    m->untaken = r < 0 ? r : 0;
    if (r == PST_KEEPER_OTHERS)
        pst_lead_end(m);
}
