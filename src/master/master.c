/* SPDX-License-Identifier: Apache-2.0 */
/* master.c: a master's life, and its thread, which stores pool maps before anyone hears of them. */
#include "master/master_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum {
    RETRY_MS = 1000,
    EPOCHS_A_SECOND_BITS = 20,
};

void pst_master_log(const struct pst_master *m, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!m->log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    m->log(m->log_ctx, line);
}

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
static void follow_map(struct pst_master *m)
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

/* Called and left with the lock held; others get in while the disk works. Return: 0 or -errno. */
static int store_map(struct pst_master *m)
{
    uint64_t version;
    size_t bytes = pst_directory_store_begin(m->directory, m->map_next, m->map_room, &version);
    uint8_t *before = m->map;
    int r;

    pst_assert(bytes > 0 && bytes <= m->map_room);
    pst_assert(m->map_next != m->map);
    for (;;) {
        pthread_mutex_unlock(&m->lock);
        r = pst_map_file_swap(m->file, version - 1, version, (struct pst_bytes){m->map_next, bytes});
        pthread_mutex_lock(&m->lock);
        if (r == 0)
            break;
        if (!m->failing)
            pst_master_log(m, "pool map %" PRIu64 " could not be stored, and changes nothing: %s", version,
                           strerror(-r));
        m->failing = true;
        if (m->stopping || !m->running)
            return r;
        pthread_mutex_unlock(&m->lock);
        usleep(RETRY_MS * 1000);
        pthread_mutex_lock(&m->lock);
    }
    pst_assert(m->map == before);
    m->failing = false;
    m->map = m->map_next;
    m->map_next = before;
    m->map_bytes = bytes;
    pst_directory_stored(m->directory, version, pst_now_ns());
    pst_assert(pst_directory_map(m->directory)->version == version);
    follow_map(m);
    tell_of_partitions(m);
    return 0;
}

static void *master_main(void *arg)
{
    struct pst_master *m = arg;

    pst_assert(m->magic == PST_MASTER_MAGIC);
    pst_assert(m->running);
    pst_assert(m->tick_ms > 0);
    pthread_mutex_lock(&m->lock);
    while (!m->stopping) {
        uint64_t until_ns = pst_deadline_ns(pst_now_ns(), m->tick_ms);

        pst_directory_tick(m->directory, pst_now_ns());
        while (!m->stopping && pst_directory_unstored(m->directory) && store_map(m) == 0)
            ;
        pst_master_publish(m);
        if (!m->stopping)
            pst_cond_wait_until(&m->stir, &m->lock, until_ns);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- life ---- */

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

static int open_directory(struct pst_master *m, const struct pst_master_settings *settings,
                          struct pst_bytes stored, char *fault)
{
    struct pst_id pool;
    int r;

    pst_assert(!m->directory);
    pst_random(&pool, sizeof(pool));
    r = pst_directory_open(&settings->directory, stored, &pool, pst_now_ns(), &m->directory);
    if (r == -EPROTONOSUPPORT)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s has a format that this program does not know",
                 settings->pool_map);
    else if (r == -E2BIG)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s has more members than members_max",
                 settings->pool_map);
    else if (r == -EBADMSG)
        snprintf(fault, PST_FAULT_BYTES, "pool map %.150s is damaged, or not a pool map", settings->pool_map);
    else if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "directory: %s", strerror(-r));
    return r == 0 && settings->adopt ? adopt(m, settings->adopt, fault) : r;
}

static int open_tables(struct pst_master *m, const struct pst_master_settings *settings, char *fault)
{
    const struct pst_external_settings external = {.nodes_max = m->members_max,
                                                   .entries_max = (uint32_t)settings->blocks_max,
                                                   .hits_max = (uint32_t)settings->block_hits_max,
                                                   .hit_ttl_ns = pst_ns_of_ms(settings->block_hit_ttl_ms)};

    pst_assert(m->members_max >= 1 && m->members_max <= PST_MAP_MEMBERS_MAX);
    pst_assert(!m->map);
    pst_assert(!m->external);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    m->map_room = pst_map_bytes_max(m->members_max);
    m->map = malloc(m->map_room);
    m->map_next = malloc(m->map_room);
    m->external_epochs = calloc(m->members_max, sizeof(*m->external_epochs));
    if (!m->map || !m->map_next || !m->external_epochs)
        return -ENOMEM;
    return pst_external_open(&external, &m->external);
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

/* Nobody is answered before the pool map is stored that this directory begins with. */
static int begin(struct pst_master *m, char *fault)
{
    char name[PST_ID_TEXT_BYTES];
    int r = 0;

    pst_assert(!m->running);
    pthread_mutex_lock(&m->lock);
    while (r == 0 && pst_directory_unstored(m->directory))
        r = store_map(m);
    pst_master_publish(m);
    pthread_mutex_unlock(&m->lock);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "pool map: %s", strerror(-r));
        return r;
    }
    pst_assert(m->map_bytes > 0);
    pst_id_print(&pst_directory_map(m->directory)->pool, name);
    pst_master_log(m, "this is pool %s", name);
    m->running = true;
    r = -pthread_create(&m->thread, NULL, master_main, m);
    m->running = r == 0;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "master's thread: %s", strerror(-r));
    return r;
}

static int open_all(struct pst_master *m, const struct pst_master_settings *settings, char *fault)
{
    struct pst_bytes stored = {NULL, 0};
    int r;

    if (!settings->pool_map) {
        snprintf(fault, PST_FAULT_BYTES, "a master needs a file for the pool map: set pool_map");
        return -EINVAL;
    }
    r = open_tables(m, settings, fault);
    if (r == 0)
        r = pst_map_file_open(settings->pool_map, m->map_room, &m->file, &stored, fault);
    if (r == 0)
        r = open_directory(m, settings, stored, fault);
    free((void *)(uintptr_t)stored.data);
    if (r == 0 && !pst_map_prefix_of(pst_directory_map(m->directory), (struct pst_bytes){"", 0}))
        r = read_place(m->directory, "=home", fault);
    for (uint32_t i = 0; i < settings->place.count && r == 0; i++)
        r = read_place(m->directory, settings->place.items[i], fault);
    return r == 0 ? begin(m, fault) : r;
}

int pst_master_open(const struct pst_master_settings *settings, void (*log)(void *ctx, const char *line),
                    void *log_ctx, struct pst_master **out, char fault[PST_FAULT_BYTES])
{
    struct pst_master *m = calloc(1, sizeof(*m));
    int r;

    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!m)
        return -ENOMEM;
    m->magic = PST_MASTER_MAGIC;
    m->log = log;
    m->log_ctx = log_ctx;
    m->members_max = (uint32_t)settings->directory.members_max;
    m->heartbeat_ms = settings->directory.heartbeat_ms;
    m->tick_ms = pst_max(pst_min(settings->directory.lease_margin_ms / 4, settings->directory.reaper_ms), 1);
    m->start_ns = pst_now_ns();
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->published_lock, NULL);
    pst_cond_init(&m->stir);
    r = open_all(m, settings, fault);
    if (r < 0) {
        pst_master_close(m);
        return r;
    }
    *out = m;
    return 0;
}

struct pst_master *pst_master_close(struct pst_master *m)
{
    if (!m)
        return NULL;
    pst_assert(m->magic == PST_MASTER_MAGIC);
    if (m->running) {
        pthread_mutex_lock(&m->lock);
        m->stopping = true;
        pthread_cond_signal(&m->stir);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
    }
    m->file = pst_map_file_close(m->file);
    pst_directory_close(m->directory);
    pst_external_close(m->external);
    pthread_cond_destroy(&m->stir);
    pthread_mutex_destroy(&m->published_lock);
    pthread_mutex_destroy(&m->lock);
    free(m->external_epochs);
    free(m->map_next);
    free(m->map);
    m->magic = 0;
    free(m);
    return NULL;
}

int pst_master_map(struct pst_master *m, struct pst_map **out)
{
    uint8_t *bytes = malloc(m->map_room);
    size_t count;
    int r;

    pst_assert(m->magic == PST_MASTER_MAGIC);
    if (!bytes)
        return -ENOMEM;
    pthread_mutex_lock(&m->lock);
    count = m->map_bytes;
    memcpy(bytes, m->map, count);
    pthread_mutex_unlock(&m->lock);
    r = pst_map_decode((struct pst_bytes){bytes, count}, m->members_max, out);
    free(bytes);
    return r;
}
