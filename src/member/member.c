/* SPDX-License-Identifier: Apache-2.0 */
/* member.c: a member's life and its thread: connect, join, tell, wait; and from the beginning when one fails.
 */
#include "member/member_priv.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/ms.h"
#include "call/call.h"
#include "pool/map_fetch.h"
#include "wire/pool.h"
#include "wire/pool_member.h"

#include <penstock/penstock.h>

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

enum {
    STORE_MS = 5000,
    OPEN_MS = 30000, /* to connect to the own node: a start that is late is better than none */
    CONNECT_MS = 1000,
    HEARTBEAT_MS_MIN = 10,
    EARLY_BEATS = 20, /* at most, in the time of one */
    SETTLE_MS = 1000, /* for writes underway, before the node leaves */
    SETTLE_US = 2000,
    LINGER_MS = 100, /* for clients to hear who serves its keys: what a node that ends was sent is UNKNOWN */
    MAP_TRIES = 8,   /* another one may come while its pieces are fetched */
};

static struct pst_bytes answer_of(const struct pst_member *m, const struct penstock_op *op)
{
    return (struct pst_bytes){m->answer, op->value_bytes};
}

/* ---- joining ---- */

static const struct pst_id *pool_of(const struct pst_pool_joined *as)
{
    _Static_assert(sizeof(as->pool) == sizeof(struct pst_id), "a pool's id");
    return (const struct pst_id *)as->pool;
}

const struct pst_id *pst_member_pool(const struct pst_member *m)
{
    pst_assert(m->joined);
    return pool_of(&m->as);
}

/* What a master says that this node is: what no master says is not taken. */
static bool take_joined(struct pst_member *m, struct pst_bytes answer)
{
    static const struct pst_id none;
    struct pst_pool_joined as;

    if (pst_pool_get(answer, &as, sizeof(as)) < 0 || as.member >= PST_MAP_MEMBERS_MAX || as.epoch == 0 ||
        pst_id_equal(pool_of(&as), &none) ||
        (!pst_id_equal(&m->identity.pool, &none) && !pst_id_equal(&m->identity.pool, pool_of(&as))))
        return false;
    as.heartbeat_ms = (uint32_t)pst_max(as.heartbeat_ms, HEARTBEAT_MS_MIN);
    m->as = as;
    return true;
}

static bool join(struct pst_member *m)
{
    char line[128];
    struct penstock_op op = {.code = PST_POOL_JOIN};
    int bytes, r;

    pst_assert(!m->joined);
    memcpy(m->self.pool, &m->identity.pool, sizeof(m->self.pool));
    r = pst_member_ask(m, &op, pst_pool_put_join(m->question, &m->self));
    if (r == 0 && take_joined(m, answer_of(m, &op))) {
        m->joined = true;
        m->version = 0;
        m->counters->joins++;
        m->lease = (struct pst_lease){0};
        m->term = 0;
        pst_serving_lease(m->serving, 0);
        memset(m->told, 0, sizeof(m->told));
        pst_report_join(m->tellers[0]->report, m->as.member, m->as.epoch);
        m->beat_ns = m->stat_ns = 0;
        bytes =
            snprintf(line, sizeof(line), "joined as member %u, epoch %" PRIu64, m->as.member, m->as.epoch);
        if (m->self.kept_epoch && m->self.kept_epoch != m->as.epoch)
            snprintf(line + bytes, sizeof(line) - (size_t)bytes, ", with all %sof epoch %" PRIu64,
                     m->self.kept_durable ? "that was durable " : "", m->self.kept_epoch);
        pst_member_say(m, line);
        m->self.kept_epoch = m->as.epoch; /* as long as it lives it has what it is asked to keep */
        m->self.kept_durable = false;
        r = pst_identity_note(&m->identity, m->as.epoch, pool_of(&m->as));
        if (r < 0)
            pst_member_trouble(m, r, "writing node_id: %s", strerror(-r));
        return true;
    }
    if (r != -ECONNRESET)
        m->counters->joins_refused++;
    if (r == -EEXIST)
        pst_member_trouble(m, r, "the id is a living node's, at %.*s", (int)pst_min(op.value_bytes, 128),
                           (const char *)m->answer);
    else if (r == -EOPNOTSUPP)
        pst_member_trouble(m, r, "not a master of this version");
    else if (r != -ECONNRESET)
        pst_member_trouble(m, r == 0 ? -EPROTO : r, "it would not take the node in: %s",
                           penstock_result_text(r == 0 ? -EPROTO : r));
    if (m->channel && r != -EEXIST)
        pst_member_hang_up(m);
    return false;
}

/* What of its values ends with the process, which writes no more: enum pst_pool_end. */
static uint8_t ends_of(const struct pst_member *m)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    if (pst_identity_outlives(&m->identity))
        return 0;
    if (penstock_stat(m->store, &stat) < 0 || stat.keys != stat.cache_keys)
        return PST_POOL_END_VALUES;
    return PST_POOL_END_VALUES | PST_POOL_END_CACHE;
}

/* What clients have been waiting for is answered before others have the partitions. */
static void settle(struct pst_member *m)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), SETTLE_MS);

    pst_assert(m->stopping);
    pst_assert(m->joined && m->channel);
    pst_serving_leave(m->serving);
    do
        usleep(SETTLE_US); /* shards end what they have begun */
    while (m->sending && !m->sender->idle(m->sender->ctx) && pst_now_ns() < until_ns);
}

static void leave(struct pst_member *m)
{
    struct pst_pool_member member = {.epoch = m->as.epoch, .member = m->as.member};
    struct penstock_op op = {.code = PST_POOL_LEAVE};

    pst_assert(m->joined && m->as.epoch > 0);
    memcpy(member.pool, m->as.pool, sizeof(member.pool));
    pst_serving_lease(m->serving, 0); /* others may have its partitions as soon as the master has heard */
    member.ends = ends_of(m);
    memcpy(m->question, &member, sizeof(member));
    pst_member_ask(m, &op, sizeof(member));
}

/* ---- the pool map ---- */

/* Shards have @pool map from now on. Return: 0 or -errno. */
static int take_map(struct pst_member *m, const struct pst_map *map)
{
    int r;

    pst_assert(m->joined && m->as.epoch > 0);
    if (!pst_id_equal(&map->pool, pool_of(&m->as))) {
        pst_member_other_pool(m);
        return -ECONNRESET;
    }
    if (map->term < m->term) {
        pst_member_is_late(m);
        return -ECONNRESET;
    }
    if (pst_serving_is_later(m->serving, map)) {
        pst_member_map_of_before(m);
        return -ECONNRESET;
    }
    r = m->sender->map(m->sender->ctx, map, m->as.member, m->as.epoch);
    if (r == 0)
        r = pst_serving_map(m->serving, map, m->as.member, m->as.epoch);
    if (r == 0)
        r = pst_tellers_follow(m, map);
    if (r == 0) {
        m->version = map->version;
        m->term = map->term;
    }
    if (m->placements != pst_serving_placements(m->serving))
        pst_tellers_miss(m, true);
    m->placements = pst_serving_placements(m->serving);
    return r;
}

/* Return: 0 shards have the master's pool map, or -errno. */
static int fetch_map(struct pst_member *m)
{
    struct pst_map_fetch fetch = {.bytes = NULL};
    struct pst_map *map = NULL;
    int r = 1;

    while (r == 1 && fetch.restarts < MAP_TRIES) {
        struct penstock_op op = {.code = PST_POOL_MAP, .offset = fetch.at, .known_version = m->version};

        memcpy(m->question, m->as.pool, sizeof(m->as.pool));
        r = pst_member_ask(m, &op, sizeof(m->as.pool));
        if (r == 0)
            r = pst_map_fetch_take(&fetch, answer_of(m, &op), op.generation);
        else if (r > 0)
            r = -EPROTO;
    }
    if (r == 1)
        r = -EAGAIN;
    if (r == 0 && (fetch.map_bytes || !m->version)) /* else it is the one that is there */
        r = pst_map_fetch_decode(&fetch, PST_MAP_MEMBERS_MAX, &map);
    if (r == 0 && map)
        r = take_map(m, map);
    pst_map_close(map);
    pst_map_fetch_fini(&fetch);
    return r;
}

/* The lease that an answer grants, to a heartbeat sent at @sent_ns; behind the pool map that it needs. */
static void take_lease(struct pst_member *m, const struct pst_pool_beat *beat, uint64_t sent_ns)
{
    int r;

    pst_assert(m->joined && beat->version);
    if (beat->term < m->term) {
        pst_member_is_late(m);
        return;
    }
    m->term = beat->term;
    r = beat->version == m->version ? 0 : fetch_map(m);
    if (r < 0 && r != -ECONNRESET)
        pst_member_trouble(m, r, "its pool map: %s", strerror(-r));
    if (r < 0 || !pst_lease_grant(&m->lease, sent_ns, beat->lease_ms, beat->lease_version, beat->term))
        return;
    pst_serving_lease(m->serving, m->version >= m->lease.version ? m->lease.until_ns : 0);
}

/* ---- telling ---- */

static void look_at_memory(struct pst_member *m, uint64_t now_ns)
{
    struct penstock_stat stat = {.size = sizeof(stat)};

    if (now_ns < m->stat_ns || penstock_stat(m->store, &stat) < 0)
        return;
    m->stat_ns = pst_deadline_ns(now_ns, m->as.heartbeat_ms);
    m->tiers[PST_POOL_DRAM] =
        (struct pst_tier_use){stat.pages * stat.page_bytes, stat.pages_used * stat.page_bytes};
    m->tiers[PST_POOL_HBM] = (struct pst_tier_use){stat.hbm_capacity_bytes, stat.hbm_used_bytes};
    m->copies_asked = stat.copies_asked > 0;
    m->tiers[PST_POOL_SSD] = (struct pst_tier_use){stat.ssd_capacity_bytes, stat.ssd_live_bytes};
}

static void tell(struct pst_member *m, uint64_t now_ns)
{
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    struct pst_heartbeat_answer answer = {0};
    const struct pst_heartbeat *message;
    struct penstock_op op = {.code = PST_POOL_HEARTBEAT};
    struct pst_pool_beat beat = {.version = 0};
    uint64_t sent_ns, sequence;
    int r;

    pst_assert(m->joined);
    look_at_memory(m, now_ns);
    message = pst_report_next(m->tellers[0]->report, m->tiers, pst_clock_read_ns(CLOCK_BOOTTIME), &sent_ns);
    pst_assert(message->member == m->as.member && message->epoch == m->as.epoch);
    sequence = message->sequence;
    r = pst_member_ask(m, &op, pst_teller_put(m, message, sent_ns, m->question));
    if (r == -ECONNRESET)
        return; /* the same message again, when there is a master */
    if (r != -ESTALE && pst_pool_get_beat(answer_of(m, &op), &beat, wants) == 0 &&
        memcmp(beat.pool, m->as.pool, sizeof(beat.pool)) == 0)
        answer = (struct pst_heartbeat_answer){.sequence_next = beat.sequence_next, .sync = beat.sync};
    else if (r != -ESTALE) {
        beat.version = 0; /* nothing of it is taken */
        pst_member_trouble(m, -EPROTO, "an answer that makes no sense, %d", r);
    }
    if (pst_report_answered(m->tellers[0]->report, sequence, r, &answer) == -ESTALE) {
        m->joined = false;
        pst_serving_lease(m->serving, 0);
        pst_member_say(m, "the master knows this node no more");
    } else if (beat.version) {
        take_lease(m, &beat, sent_ns);
        if (r == 0 && m->version &&
            pst_tellers_tried(m)) /* from now on the master sends puts here, and takes reports on the node */
            pst_ready_set(&m->ready);
        m->sender->wants(m->sender->ctx, wants, beat.want_count);
        pst_repairer_tell(m->repairer,
                          &(struct pst_repair_time){.repair = beat.repair,
                                                    .pool = *pool_of(&m->as),
                                                    .epoch = m->as.epoch,
                                                    .seed = m->as.seed,
                                                    .member = m->as.member,
                                                    .share_last = (uint16_t)(m->teller_count - 1),
                                                    .master = m->masters[m->master_at]});
    }
    m->beat_ns = pst_deadline_ns(now_ns, m->as.heartbeat_ms);
}

static void tell_of_refused(struct pst_member *m, const struct pst_pool_copy *changes, uint32_t count)
{
    for (uint32_t i = 0; i < count && !m->unfit; i++) {
        if (changes[i].change != PST_POOL_COPY_REFUSE)
            continue;
        m->unfit = true;
        pst_member_say(
            m, "the SSD could not be synced, so this node gives partitions back that it would have to clear "
               "first");
    }
}

/* What is to change of partitions' copies; the pool map tells that it has. */
static void tell_copies(struct pst_member *m)
{
    struct pst_pool_copy changes[PST_POOL_COPIES_MAX];
    struct penstock_op op = {.code = PST_POOL_COPIES};
    uint64_t version_before = m->version;
    uint32_t count;
    int r = 0;

    pst_event_clear(m->changed_fd);
    count = m->sender->changes(m->sender->ctx, changes);
    pst_assert(count <= PST_POOL_COPIES_MAX && m->joined);
    tell_of_refused(m, changes, count);
    if (count)
        r = pst_member_ask(m, &op,
                           pst_pool_put_items(m->question, m->as.pool, sizeof(m->as.pool), changes,
                                              sizeof(changes[0]), count));
    if (r == 0 && (pst_serving_behind(m->serving) || count))
        fetch_map(m);
    /* What the last answer wanted is done, at the pace of its bytes: whoever drains need not wait for the
     * next. */
    if (r == 0 && count && m->version != version_before)
        m->beat_ns = pst_min(m->beat_ns, pst_deadline_ns(pst_now_ns(), m->as.heartbeat_ms / EARLY_BEATS));
}

/* ---- the loop ---- */

/* Waits for something to tell, and then a little, for what comes with it. */
static void wait_for_changes(struct pst_member *m, uint64_t now_ns)
{
    struct pollfd changed = {.fd = penstock_watch_fd(m->watch), .events = POLLIN};

    pst_member_nap(m, changed.fd, m->beat_ns > now_ns ? (m->beat_ns - now_ns) / 1000000 + 1 : 0);
    if (m->report_ms && changed.fd >= 0 && poll(&changed, 1, 0) > 0)
        pst_member_nap(m, -1, m->report_ms);
}

/* The report that begins with a membership is full, and depends on where keys lie. Return: the master is
 * there still. */
static bool take_first_map(struct pst_member *m)
{
    pst_assert(m->joined);
    fetch_map(m);
    pst_tellers_miss(m, false);
    return m->channel != NULL;
}

/*
 * A channel to a master. From the first heartbeat on it counts on a node that takes no lease of the ones
 * before it any more: so a node that it knows already first learns of which term it is. Return: false there
 * is none.
 */
static bool reach_master(struct pst_member *m)
{
    if (m->channel)
        return true;
    if (!pst_member_dial(m))
        return false;
    if (m->joined && fetch_map(m) < 0 && m->channel)
        pst_member_hang_up(m);
    return m->channel != NULL;
}

static void *member_main(void *arg)
{
    struct pst_member *m = arg;

    pst_assert(m->magic == MEMBER_MAGIC);
    while (!m->stopping) {
        uint64_t now_ns;

        pst_tellers_take_changes(m);
        if (!reach_master(m) || (!m->joined && (!join(m) || !take_first_map(m)))) {
            pst_member_nap(m, -1, RETRY_MS);
            continue;
        }
        tell_copies(m);
        if (!m->channel)
            continue;
        now_ns = pst_now_ns();
        if (pst_report_is_behind(m->tellers[0]->report) || now_ns >= m->beat_ns)
            tell(m, now_ns);
        else
            wait_for_changes(m, now_ns);
    }
    if (m->joined && m->channel) {
        settle(m);
        leave(m);
        usleep(LINGER_MS * 1000);
    }
    return NULL;
}

/* ---- beginning and end ---- */

static int describe(struct pst_member *m, const struct pst_member_settings *settings,
                    const struct pst_member_node *node, char *fault)
{
    struct pst_pool_join *self = &m->self;
    struct pst_boot_address first;
    const char *why;
    int r;

    pst_host_id(settings->host, self->host);
    pst_random(&self->start, sizeof(self->start));
    r = pst_identity_init(&m->identity, settings->node_id, node->beside, node->memory, node->disk, fault);
    if (r < 0)
        return r;
    memcpy(self->id, m->identity.id, sizeof(self->id));
    self->kept_epoch = m->identity.epoch;
    self->kept_durable = m->identity.durable;
    if (!settings->advertise && pst_boot_address_parse(node->address, &first, &why) == 0 &&
        pst_boot_address_wildcard(&first)) {
        snprintf(fault, PST_FAULT_BYTES,
                 "advertise: %.100s is every address: set the one that the pool is to use", node->address);
        return -EINVAL;
    }
    if ((size_t)snprintf(self->address, sizeof(self->address), "%s",
                         settings->advertise ? settings->advertise : node->address) >=
            sizeof(self->address) ||
        (size_t)snprintf(self->unix_path, sizeof(self->unix_path), "%s", node->unix_path) >=
            sizeof(self->unix_path) ||
        (size_t)snprintf(self->tags, sizeof(self->tags), "%s", settings->tags ? settings->tags : "") >=
            sizeof(self->tags)) {
        snprintf(fault, PST_FAULT_BYTES, "advertise or tags: longer than %d bytes", PST_POOL_TAGS_BYTES - 1);
        return -EINVAL;
    }
    return 0;
}

static int open_store(struct pst_member *m, const struct pst_member_node *node, char *fault)
{
    struct penstock_options options = {.size = sizeof(options),
                                       .secret_file = node->secret_file,
                                       .timeout_ms = STORE_MS,
                                       .connect_ms = OPEN_MS};
    const struct penstock_watch_options all = {.size = sizeof(all), .flags = PENSTOCK_WATCH_MOVES};
    struct penstock_stat stat = {.size = sizeof(stat)};
    int r = penstock_open(node->url, &options, &m->store);

    if (r == 0)
        r = penstock_watch_open_with(m->store, &all, &m->watch);
    if (r == 0)
        r = penstock_stat(m->store, &stat);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "pool: %.200s", penstock_error());
    m->self.page_bytes = stat.page_bytes;
    return r;
}

static int open_sender(struct pst_member *m, const struct pst_member_node *node, char *fault)
{
    struct pst_channel_options self = m->options;
    char address[sizeof(self.address.path) + sizeof("unix://")];
    const char *why = "";
    int r;

    pst_assert(m->changed_fd >= 0 && !m->sending && !m->repairer);
    snprintf(address, sizeof(address), "unix://%s", node->unix_path);
    r = pst_boot_address_parse(address, &self.address, &why);
    if (r == 0)
        r = m->sender->open(m->sender->ctx, &self, m->changed_fd);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "copies: %s", strerror(-r));
        return r;
    }
    m->sending = true;
    pst_serving_wakes(m->serving, m->changed_fd);
    r = pst_repairer_open(&self, m->store, m->serving, m->sender, m->options.timeout_ms, &m->repairer);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "repair: %s", strerror(-r));
    return r;
}

/* Short beside the lease, so that another master can still be asked; longer where the operator says that
 * calls take their time. */
static uint32_t connect_ms(uint64_t shutdown_ms)
{
    return (uint32_t)pst_max(pst_min(shutdown_ms, CONNECT_MS), shutdown_ms / 3);
}

static int read_settings(struct pst_member *m, const struct pst_member_settings *settings,
                         const struct pst_member_node *node, char *fault)
{
    const char *why = "";
    int r = 0;

    pst_assert(settings->master.count <= PST_STRINGS_MAX);
    m->master_count = settings->master.count;
    m->report_ms = settings->report_ms;
    m->options = (struct pst_channel_options){.fabric_trusted = node->fabric_trusted,
                                              .tls = node->tls,
                                              .transport = node->transport,
                                              .connect_ms = connect_ms(settings->shutdown_ms),
                                              .timeout_ms = (uint32_t)settings->shutdown_ms};
    for (uint32_t i = 0; i < m->master_count; i++) {
        r = pst_boot_address_parse(settings->master.items[i], &m->masters[i], &why);
        if (r < 0) {
            snprintf(fault, PST_FAULT_BYTES, "master %.150s: %s", settings->master.items[i], why);
            return r;
        }
    }
    if (node->secret_file)
        r = pst_secret_read(node->secret_file, m->secret, sizeof(m->secret), fault);
    m->options.secret = (struct pst_bytes){m->secret, r > 0 ? (size_t)r : 0};
    return r < 0 ? r : describe(m, settings, node, fault);
}

int pst_member_open(const struct pst_member_settings *settings, const struct pst_member_node *node,
                    void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_member **out,
                    char fault[PST_FAULT_BYTES])
{
    struct pst_member *m = calloc(1, sizeof(*m));
    int r;

    pst_assert(settings->master.count > 0);
    pst_assert(node->serving && node->counters && node->sender);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!m)
        return -ENOMEM;
    m->magic = MEMBER_MAGIC;
    m->log = log;
    m->log_ctx = log_ctx;
    m->serving = node->serving;
    m->counters = node->counters;
    m->sender = node->sender;
    m->identity = (struct pst_identity){.fd = -1, .pool_fd = -1};
    r = pst_ready_init(&m->ready);
    m->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r == 0 && (m->stop_fd < 0 || m->changed_fd < 0))
        r = -errno;
    if (r == 0)
        r = read_settings(m, settings, node, fault);
    if (r == 0)
        r = pst_tellers_open(m);
    if (r == 0)
        r = open_store(m, node, fault);
    if (r == 0)
        r = open_sender(m, node, fault);
    if (r == 0) {
        r = -pthread_create(&m->thread, NULL, member_main, m);
        m->running = r == 0;
    }
    if (r < 0) {
        pst_member_close(m);
        return r;
    }
    *out = m;
    return 0;
}

int pst_member_ready_fd(const struct pst_member *m)
{
    pst_assert(m->magic == MEMBER_MAGIC);
    return m->ready.fd;
}

int pst_member_wait(struct pst_member *m, uint64_t ms, char fault[PST_FAULT_BYTES])
{
    pst_assert(m->magic == MEMBER_MAGIC);
    return pst_ready_wait(&m->ready, ms, fault);
}

struct pst_member *pst_member_close(struct pst_member *m)
{
    if (!m)
        return NULL;
    pst_assert(m->magic == MEMBER_MAGIC);
    m->stopping = true;
    pst_repairer_stop(m->repairer);
    if (m->running) {
        pst_event_set(m->stop_fd);
        pthread_join(m->thread, NULL);
    }
    pst_repairer_close(m->repairer);
    pst_serving_wakes(m->serving, -1);
    if (m->sending)
        m->sender->stop(m->sender->ctx);
    pst_channel_close(m->channel);
    pst_tellers_close(m);
    penstock_watch_close(m->watch);
    penstock_close(m->store);
    pst_identity_fini(&m->identity);
    pst_close_fd(&m->changed_fd);
    pst_close_fd(&m->stop_fd);
    pst_ready_fini(&m->ready);
    explicit_bzero(m->secret, sizeof(m->secret));
    m->magic = 0;
    free(m);
    return NULL;
}
