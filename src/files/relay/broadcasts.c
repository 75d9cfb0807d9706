/* SPDX-License-Identifier: Apache-2.0 */
/* broadcasts.c: which broadcasts there are, and what the source answers their members. */
#include "files/relay/feed_priv.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/ms.h"
#include "base/wait.h"

#include <arpa/inet.h>
#include <stdio.h>

enum { PATIENCE_MS = 300 }; /* between two signs of life to a member that waits for the plan */

enum state {
    PREPARING,
    READY,
    OVER, /* nobody is a member any more: it can be listed, and has no plan */
    FAILED,
};

struct broadcast {
    struct pst_list link;
    uint32_t users; /* threads that serve a member of it */
    enum state state;
    int error;
    char fault[PST_FAULT_BYTES];
    char *group, *name;
    struct relay_tree tree;
    struct relay_feed feed;
    struct pst_chain *chain;
    uint64_t used_ms;
};

struct pst_broadcasts {
    struct pst_broadcasts_settings settings;
    pthread_mutex_t lock; /* of all rows, too */
    pthread_cond_t prepared;
    struct pst_list list;
    uint32_t count;
    bool stopping;
};

/* What a member says. */
struct said {
    char group[RELAY_GROUP_BYTES_MAX + 1], host[PST_CHAIN_HOST_BYTES_MAX + 1];
    uint64_t id;
    uint32_t members, rank, parent_rank, pieces;
    uint16_t port;
    enum relay_word word;
};

/* ---- the list, under the lock ---- */

static void broadcast_free(struct broadcast *b)
{
    pst_assert(b->users == 0);
    relay_feed_fini(&b->feed);
    relay_tree_fini(&b->tree);
    pst_chain_close(b->chain);
    free(b->group);
    free(b->name);
    free(b);
}

static void broadcast_remove(struct pst_broadcasts *all, struct broadcast *b)
{
    pst_assert(all->count > 0);
    all->count--;
    pst_list_remove(&b->link);
    broadcast_free(b);
}

static struct broadcast *broadcast_find(struct pst_broadcasts *all, const char *group, const char *name)
{
    pst_list_each (it, &all->list) {
        struct broadcast *b = pst_list_entry(it, struct broadcast, link);

        if (strcmp(b->group, group) == 0 && strcmp(b->name, name) == 0)
            return b;
    }
    return NULL;
}

/* All of its members have left, or have not been heard of: whoever joins wants the tree as it is now. */
static bool broadcast_is_over(const struct broadcast *b)
{
    return b->state != PREPARING && b->users == 0 &&
           (b->tree.copies || pst_chain_is_over(b->chain, pst_now_ms()));
}

/* Makes room for another. Return: 0, -EBUSY all are served. */
static int broadcasts_make_room(struct pst_broadcasts *all)
{
    struct broadcast *oldest = NULL;

    pst_assert(all->count <= PST_BROADCASTS_MAX);
    if (all->count < PST_BROADCASTS_MAX)
        return 0;
    pst_list_each (it, &all->list) {
        struct broadcast *b = pst_list_entry(it, struct broadcast, link);

        if (b->users == 0 && (!oldest || b->used_ms < oldest->used_ms))
            oldest = b;
    }
    if (!oldest)
        return -EBUSY;
    broadcast_remove(all, oldest);
    return 0;
}

static int broadcast_new(struct pst_broadcasts *all, const char *group, const char *name,
                         struct broadcast **out)
{
    struct broadcast *b;
    int r = broadcasts_make_room(all);

    if (r < 0)
        return r;
    pst_assert(all->count < PST_BROADCASTS_MAX);
    b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    relay_tree_init(&b->tree);
    relay_feed_init(&b->feed, &relay_tree_ops, &b->tree);
    b->group = strdup(group);
    b->name = strdup(name);
    b->chain = pst_chain_open();
    if (!b->group || !b->name || !b->chain) {
        broadcast_free(b);
        return -ENOMEM;
    }
    pst_list_push_back(&all->list, &b->link);
    all->count++;
    pst_assert(all->count <= PST_BROADCASTS_MAX);
    *out = b;
    return 0;
}

/* A group that is over keeps none of the memory of its tree. */
static void broadcast_end(struct broadcast *b)
{
    if (b->state != READY || !broadcast_is_over(b))
        return;
    pst_assert(b->users == 0);
    pst_assert(!b->feed.child);
    relay_tree_shrink(&b->tree);
    b->state = OVER;
}

/* A thread serves no member of it any more. One that could not be prepared is forgotten, so that it is tried
 * again. */
static void broadcast_drop(struct pst_broadcasts *all, struct broadcast *b)
{
    pthread_mutex_lock(&all->lock);
    pst_assert(b->users > 0);
    b->users--;
    if (b->users == 0 && b->state == FAILED)
        broadcast_remove(all, b);
    else
        broadcast_end(b);
    pthread_mutex_unlock(&all->lock);
}

/* ---- preparing ---- */

/* One that is new, for its first member. */
struct preparing {
    struct pst_broadcasts *all;
    struct broadcast *b;
    uint32_t members;
};

/* Any thread. Return: 0: how it went is the broadcast's. */
static int broadcast_prepare(void *arg)
{
    struct pst_broadcasts *all = ((const struct preparing *)arg)->all;
    struct broadcast *b = ((const struct preparing *)arg)->b;
    uint32_t members = ((const struct preparing *)arg)->members;
    uint32_t expected = members ? (uint32_t)pst_min(members, PST_CHAIN_MEMBERS_MAX) : PST_BROADCAST_MEMBERS;
    const struct pst_broadcasts_settings *settings = &all->settings;
    char fault[PST_FAULT_BYTES] = "";
    int r;

    b->tree.source.munged = settings->munged;
    r = settings->resolve
            ? settings->resolve(settings->ctx, b->name, false, &b->tree.source.folder_fd, b->tree.leaf, fault)
            : relay_tree_gather(&b->tree, settings, b->group, b->name, fault);

    if (r == 0)
        r = relay_tree_prepare(&b->tree, expected + 1, fault);
    if (r == 0 && !b->tree.copies)
        relay_feed_plan(&b->feed, &b->tree.plan, b->tree.plan.count);
    pthread_mutex_lock(&all->lock);
    pst_assert(b->state == PREPARING);
    pst_assert(b->users > 0);
    pst_assert(r <= 0);
    b->state = r < 0 ? FAILED : READY;
    b->error = r;
    memcpy(b->fault, fault, sizeof(fault));
    pthread_cond_broadcast(&all->prepared);
    pthread_mutex_unlock(&all->lock);
    return 0;
}

/* Waits, with signs of life, until another thread has prepared it. */
static int broadcast_await(struct pst_broadcasts *all, struct broadcast *b, struct link *link)
{
    char fault[PST_FAULT_BYTES] = "the store is stopping";
    int r = 0, error = 0;

    pthread_mutex_lock(&all->lock);
    pst_assert(b->users > 0);
    while (r == 0 && b->state == PREPARING && !all->stopping) {
        pst_cond_wait_until(&all->prepared, &all->lock, pst_deadline_ns(pst_now_ns(), PATIENCE_MS));
        pthread_mutex_unlock(&all->lock);
        r = link_alive(link);
        pthread_mutex_lock(&all->lock);
    }
    if (b->state != READY)
        error = b->state == FAILED ? b->error : -ECANCELED;
    if (b->state == FAILED)
        memcpy(fault, b->fault, sizeof(fault));
    pthread_mutex_unlock(&all->lock);
    return r == 0 && error ? link_fail(link, error, "%s", fault) : r;
}

/* The broadcast that a member names; @makes: or a new one. One that is not known is -ESTALE: -ENOENT says
 * that there is no such tree. Return: 0 and *@out, to be dropped; or the link's error. */
static int broadcast_take(struct pst_broadcasts *all, const char *group, const char *name, bool makes,
                          struct link *link, uint32_t members, struct broadcast **out)
{
    struct preparing preparing = {.all = all, .members = members};
    struct broadcast *b;
    bool is_new;
    int r = 0;

    pthread_mutex_lock(&all->lock);
    b = broadcast_find(all, group, name);
    if (b && makes && broadcast_is_over(b)) {
        broadcast_remove(all, b);
        b = NULL;
    }
    if (b && !makes && b->state == OVER)
        b = NULL;
    is_new = !b && makes;
    if (is_new)
        r = broadcast_new(all, group, name, &b);
    if (r == 0 && b) {
        b->users++;
        b->used_ms = pst_now_ms();
    }
    pthread_mutex_unlock(&all->lock);
    if (r < 0 || !b)
        return link_fail(link, r < 0 ? r : -ESTALE, "%s",
                         r < 0 ? "the store has too many broadcasts" : "the store knows no such broadcast");
    preparing.b = b;
    if (is_new)
        carry_meanwhile(link, broadcast_prepare, &preparing, NULL);
    r = broadcast_await(all, b, link);
    if (r < 0)
        broadcast_drop(all, b);
    else
        *out = b;
    return r;
}

/* ---- answers ---- */

/* Where the member stands; @rank 0: nowhere. Under the lock of the call that it made: the next one may take
 * it out of the row. */
static void place_of(const struct broadcast *b, uint32_t rank, struct relay_place *out)
{
    const struct relay_plan *plan = &b->tree.plan;
    struct pst_chain_place place;

    *out = (struct relay_place){.copies = b->tree.copies,
                                .blake2b = plan->blake2b,
                                .rank = rank,
                                .piece_bytes = plan->pieces.piece_bytes,
                                .pieces = plan->count,
                                .bytes = plan->m.file_bytes};
    memcpy(out->key, b->tree.key, sizeof(out->key));
    if (!rank)
        return;
    pst_assert(!b->tree.copies);
    pst_chain_place(b->chain, rank, &place);
    out->may_leave = place.may_leave;
    out->parent_rank = place.parent_rank;
    out->port = place.parent.port;
    snprintf(out->host, sizeof(out->host), "%s", place.parent.host ? place.parent.host : "");
}

static int answer_join(struct pst_broadcasts *all, const char *name, const struct said *said,
                       struct link *link)
{
    const struct pst_chain_address address = {said->host, said->port};
    struct broadcast *b = NULL;
    struct relay_place place;
    uint32_t rank = 0;
    int r = broadcast_take(all, said->group, name, true, link, said->members, &b);

    if (r < 0)
        return r;
    pthread_mutex_lock(&all->lock);
    if (!b->tree.copies)
        r = pst_chain_join(b->chain, said->id, &address, pst_now_ms(), &rank);
    pst_assert(r < 0 || b->tree.copies || rank > 0);
    place_of(b, rank, &place);
    pthread_mutex_unlock(&all->lock);
    r = r < 0 ? link_fail(link, r, "the member cannot join: %s", strerror(-r))
              : relay_send_place(link, &place);
    broadcast_drop(all, b);
    return r;
}

/* Under the lock. Return: as the call of the row. */
static int chain_tell(struct broadcast *b, const struct said *said)
{
    uint64_t now_ms = pst_now_ms();

    switch (said->word) {
    case RELAY_PROGRESS:
    case RELAY_DONE:
        return pst_chain_progress(b->chain, said->rank, said->id, said->pieces, said->word == RELAY_DONE,
                                  now_ms);
    case RELAY_SILENT:
    case RELAY_WRONG_BYTES:
        return pst_chain_report(b->chain, said->rank, said->id, said->parent_rank,
                                said->word == RELAY_SILENT ? PST_CHAIN_SILENT : PST_CHAIN_WRONG_BYTES,
                                now_ms);
    case RELAY_LEAVE:
        return pst_chain_leave(b->chain, said->rank, said->id);
    }
    return -EINVAL;
}

static int answer_tell(struct pst_broadcasts *all, const char *name, const struct said *said,
                       struct link *link)
{
    struct broadcast *b = NULL;
    struct relay_place place;
    int r = broadcast_take(all, said->group, name, false, link, 0, &b);

    if (r < 0)
        return r;
    pthread_mutex_lock(&all->lock);
    r = chain_tell(b, said);
    place_of(b, r < 0 || said->word == RELAY_LEAVE ? 0 : said->rank, &place);
    pthread_mutex_unlock(&all->lock);
    if (r < 0)
        r = link_fail(link, r == -ENOENT ? -ESTALE : r, "the store knows no such member of the broadcast");
    else if (r == PST_CHAIN_IS_SOURCE && said->word == RELAY_WRONG_BYTES)
        r = link_fail(link, -EBADMSG, "the source sent other bytes than it had: its tree has changed");
    else
        r = relay_send_place(link, &place);
    broadcast_drop(all, b);
    return r;
}

static int serve_call(struct pst_broadcasts *all, const char *name, struct link *link)
{
    struct said said = {.rank = 0};
    uint64_t version = PST_BROADCAST_VERSION;
    struct pst_reader frame;
    struct in_addr numeric;
    enum link_type type;
    int r = link_receive(link, 0, &type, &frame);

    if (r < 0)
        return r;
    if (type == LINK_JOIN) {
        version = pst_read_number(&frame, 2);
        said.id = pst_read_number(&frame, 8);
        said.members = (uint32_t)pst_read_number(&frame, 4);
        said.port = (uint16_t)pst_read_number(&frame, 2);
        link_read_text(&frame, said.host, sizeof(said.host));
    } else {
        said.id = pst_read_number(&frame, 8);
        said.rank = (uint32_t)pst_read_number(&frame, 4);
        said.word = (enum relay_word)pst_read_number(&frame, 1);
        said.parent_rank = (uint32_t)pst_read_number(&frame, 4);
        said.pieces = (uint32_t)pst_read_number(&frame, 4);
    }
    link_read_text(&frame, said.group, sizeof(said.group));
    if (version != PST_BROADCAST_VERSION)
        return link_fail(link, -EPROTONOSUPPORT, "the member speaks version %u of broadcasts, the store %d",
                         (unsigned)version, PST_BROADCAST_VERSION);
    if (frame.bad || !said.group[0] || (type != LINK_JOIN && type != LINK_TELL) ||
        (type == LINK_JOIN && inet_pton(AF_INET, said.host, &numeric) != 1))
        return link_fail(link, -EPROTO, "the member says what there is not");
    return type == LINK_JOIN ? answer_join(all, name, &said, link) : answer_tell(all, name, &said, link);
}

static int serve_follow(struct pst_broadcasts *all, const char *name, struct link *link)
{
    struct relay_follow follow;
    struct broadcast *b = NULL;
    int r = relay_receive_follow(link, &follow);

    if (r == 0)
        r = broadcast_take(all, follow.group, name, false, link, 0, &b);
    if (r < 0)
        return r;
    r = b->tree.copies ? link_fail(link, -EINVAL, "this broadcast is one of copies")
                       : relay_feed_serve(&b->feed, link, &follow, b->tree.key, b->tree.plan.count);
    broadcast_drop(all, b);
    return r;
}

int pst_broadcasts_serve(struct pst_broadcasts *all, struct link *link, uint32_t operation, const char *name)
{
    pst_assert(operation == CARRY_CALL || operation == CARRY_FOLLOW);
    return operation == CARRY_CALL ? serve_call(all, name, link) : serve_follow(all, name, link);
}

/* ---- for people ---- */

void pst_broadcasts_list(struct pst_broadcasts *all, const char *group, const struct pst_broadcast_each *each)
{
    pthread_mutex_lock(&all->lock);
    pst_list_each (it, &all->list) {
        const struct broadcast *b = pst_list_entry(it, struct broadcast, link);
        struct pst_broadcast_info info;

        /* Until it is ready its tree is its thread's. */
        if ((b->state != READY && b->state != OVER) || b->tree.copies ||
            (group && strcmp(group, b->group) != 0))
            continue;
        info = (struct pst_broadcast_info){.group = b->group,
                                           .name = b->name,
                                           .members = pst_chain_count(b->chain),
                                           .piece_bytes = b->tree.plan.pieces.piece_bytes,
                                           .pieces = b->tree.plan.count,
                                           .bytes = b->tree.plan.m.file_bytes};
        each->broadcast(each->arg, &info);
        pst_chain_list(b->chain, each->member, each->arg);
    }
    pthread_mutex_unlock(&all->lock);
}

/* ---- beginning and end ---- */

struct pst_broadcasts *pst_broadcasts_open(const struct pst_broadcasts_settings *settings)
{
    struct pst_broadcasts *all = calloc(1, sizeof(*all));

    pst_assert(!settings->resolve != !settings->gather);
    if (!all)
        return NULL;
    all->settings = *settings;
    pst_list_init(&all->list);
    pthread_mutex_init(&all->lock, NULL);
    pst_cond_init(&all->prepared);
    return all;
}

void pst_broadcasts_forget(struct pst_broadcasts *all, uint64_t now_ms)
{
    pthread_mutex_lock(&all->lock);
    pst_list_each_safe (it, &all->list) {
        struct broadcast *b = pst_list_entry(it, struct broadcast, link);

        if (b->users == 0 && now_ms > b->used_ms && now_ms - b->used_ms > PST_BROADCAST_LIFE_MS)
            broadcast_remove(all, b);
        else
            broadcast_end(b);
    }
    pthread_mutex_unlock(&all->lock);
}

void pst_broadcasts_stop(struct pst_broadcasts *all)
{
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    pthread_cond_broadcast(&all->prepared);
    pst_list_each (it, &all->list)
        relay_feed_end(&pst_list_entry(it, struct broadcast, link)->feed);
    pthread_mutex_unlock(&all->lock);
}

struct pst_broadcasts *pst_broadcasts_close(struct pst_broadcasts *all)
{
    if (!all)
        return NULL;
    pst_list_each_safe (it, &all->list)
        broadcast_remove(all, pst_list_entry(it, struct broadcast, link));
    pst_assert(all->count == 0);
    pst_assert(pst_list_empty(&all->list));
    pthread_cond_destroy(&all->prepared);
    pthread_mutex_destroy(&all->lock);
    free(all);
    return NULL;
}
