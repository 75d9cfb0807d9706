/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd.c: the keeper. The master's thread takes, swaps and gives; a thread of its own renews the lease. Each
 * has its own way to etcd. What both know is behind the lock, which nobody holds while etcd is asked.
 */
#include "master/etcd/etcd.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"
#include "master/etcd/asker.h"
#include "master/etcd/messages.h"
#include "master/stored.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum {
    PREFIX_BYTES_MAX = 200,
    LEADER_BYTES_MAX = 200,
    ANSWER_MORE_BYTES = 256 << 10, /* than a value as base64 has */
    GRACE_DIGITS_MAX = 20,
    RENEWALS = 3,   /* so many in the time of a lease, */
    AGAIN_MS = 250, /* and behind one that failed */
    MARGIN = 5,     /* a lease ends here that part of it earlier */
};

#define ETCD_MAGIC 0x65746364u

struct etcd {
    struct pst_keeper keeper;
    uint32_t magic;
    const struct pst_etcd_settings *settings;
    char map_key[PREFIX_BYTES_MAX + 8], leader_key[PREFIX_BYTES_MAX + 8], grace_key[PREFIX_BYTES_MAX + 8];
    char name[PREFIX_BYTES_MAX + 16];
    char address[PST_MAP_ADDRESS_BYTES];
    uint64_t ttl_s;
    struct pst_etcd_asker asker, renewer;
    struct pst_etcd_asker looker; /* apart, since renewals need no user, and what it asks does */
    int64_t granted;              /* the last lease that this master had, which may not have ended; 0: none */
    int64_t set;                  /* that of the pool map that it knows; 0: there is none */
    bool has;                     /* it had taken the pool map, which may be as it knew it */
    bool seen; /* there was a pool map: if there is none, etcd has lost it, and no pool begins */
    pthread_mutex_t lock;
    pthread_cond_t stir;
    int64_t lease;     /* 0: none; as the rest, behind the lock */
    int64_t made;      /* the revision at which this master made `leader`, or 0; its main thread sets it */
    uint64_t until_ns; /* the lease holds, as far as is known here */
    struct pst_hold hold;
    uint64_t renew_ns;
    char fault[PST_FAULT_BYTES]; /* of the last renewal; "": it went well */
    bool ending, running;
    pthread_t thread;
};

static struct etcd *etcd_of(struct pst_keeper *keeper)
{
    struct etcd *e = pst_container_of(keeper, struct etcd, keeper);

    pst_assert(e->magic == ETCD_MAGIC);
    return e;
}

/* ---- transactions ---- */

/* Ends @txn. Return: 0, -errno with the reason in @fault. */
static int carry_out_by(struct etcd *e, struct pst_etcd_asker *asker, struct pst_etcd_txn *txn,
                        size_t bytes_max, struct pst_etcd_done *done, char *fault)
{
    struct pst_json *answer = NULL;
    int r = pst_etcd_asker_ask(asker, "/v3/kv/txn", pst_etcd_txn_end(txn), &answer, fault);

    pst_assert(asker == &e->asker || asker == &e->looker);
    if (r < 0)
        return r;
    r = pst_etcd_get_done(answer, bytes_max, done);
    pst_json_free(answer);
    if (r == -EFBIG)
        snprintf(fault, PST_FAULT_BYTES, "etcd's %.150s has more bytes than %s",
                 bytes_max == LEADER_BYTES_MAX ? e->leader_key : e->map_key,
                 bytes_max == LEADER_BYTES_MAX ? "an address" : "a pool map of members_max members");
    else if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "etcd: an answer that makes no sense: %s", strerror(-r));
    return r;
}

/* The same by the master's thread. */
static int carry_out(struct etcd *e, struct pst_etcd_txn *txn, size_t bytes_max, struct pst_etcd_done *done,
                     char *fault)
{
    return carry_out_by(e, &e->asker, txn, bytes_max, done, fault);
}

/* ---- the lease ---- */

static uint64_t boot_ns(void)
{
    return pst_clock_read_ns(CLOCK_BOOTTIME);
}

/* What the lease says of the pool map, once that is taken with it. */
static void hold_on(struct etcd *e)
{
    if (e->hold.lost)
        return;
    pst_assert(e->lease && e->made);
    e->hold.leads_until_ns = e->until_ns;
    e->hold.speaks_until_ns = pst_deadline_ns(e->until_ns, e->settings->etcd_grace_ms);
}

/* The lease holds from @sent_ns on, when etcd had not begun to count it. */
static void note_lease(struct etcd *e, uint64_t sent_ns, uint64_t ttl_s)
{
    uint64_t ttl_ms = pst_min(ttl_s, e->ttl_s) * 1000;

    pst_assert(e->lease && ttl_ms > 0);
    e->until_ns = pst_deadline_ns(sent_ns, ttl_ms - ttl_ms / MARGIN);
    e->renew_ns = pst_deadline_ns(pst_now_ns(), ttl_ms / RENEWALS);
    hold_on(e);
}

/* Another may lead from now on; this one may speak as long as it might have before. */
static void lose(struct etcd *e)
{
    e->lease = 0;
    e->hold.lost = true;
    e->hold.leads_until_ns = 0;
}

/* Without the lock. Return: 0, -ESTALE it has ended, -errno with the reason in @fault. */
static int renew(struct etcd *e, int64_t lease, uint64_t *ttl_s, char *fault)
{
    struct pst_json *answer = NULL;
    int64_t same;
    int r = pst_etcd_asker_ask(&e->renewer, "/v3/lease/keepalive", pst_etcd_lease(lease), &answer, fault);

    if (r == 0) {
        r = pst_etcd_get_lease(answer, &same, ttl_s);
        if (r < 0 || same != lease)
            snprintf(fault, PST_FAULT_BYTES, "etcd: an answer about a lease that makes no sense");
        r = r == 0 && same != lease ? -EPROTO : r;
        if (r == 0 && *ttl_s == 0) {
            snprintf(fault, PST_FAULT_BYTES, "etcd: the master's lease has ended");
            r = -ESTALE;
        }
    }
    pst_json_free(answer);
    return r;
}

/* Whether `leader` is the one that this master made: somebody may have deleted it under a lease that lives.
 * What is not answered is not known. With a get, so that etcd's leader says it: other servers may be late. */
static void look_after_key(struct etcd *e)
{
    int64_t lease = e->lease, made = e->made;
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    char fault[PST_FAULT_BYTES];
    int r;

    pst_assert(lease && made);
    pthread_mutex_unlock(&e->lock);
    pst_etcd_if_made(&txn, e->leader_key, made);
    pst_etcd_then_look(&txn, e->map_key);
    pst_etcd_else_get(&txn, e->leader_key);
    r = carry_out_by(e, &e->looker, &txn, LEADER_BYTES_MAX, &done, fault);
    pthread_mutex_lock(&e->lock);
    if (r < 0)
        return;
    if (!done.held && e->lease == lease && e->made == made) {
        snprintf(e->fault, sizeof(e->fault), "etcd: %.150s is this master's no more", e->leader_key);
        lose(e);
    }
    e->hold.gone = done.held && done.count == 1 && !done.entries[0].there;
    pst_etcd_done_fini(&done);
}

static void renew_once(struct etcd *e)
{
    char fault[PST_FAULT_BYTES] = "";
    int64_t lease = e->lease;
    uint64_t sent_ns = boot_ns(), ttl_s = 0;
    int r;

    pst_assert(lease);
    pthread_mutex_unlock(&e->lock);
    r = renew(e, lease, &ttl_s, fault);
    pthread_mutex_lock(&e->lock);
    if (e->lease != lease)
        return; /* given up meanwhile */
    snprintf(e->fault, sizeof(e->fault), "%s", r < 0 ? fault : "");
    if (r == 0)
        note_lease(e, sent_ns, ttl_s);
    else if (r == -ESTALE)
        lose(e);
    else
        e->renew_ns = pst_deadline_ns(pst_now_ns(), AGAIN_MS);
    if (r == 0 && e->made)
        look_after_key(e);
}

static void *renew_main(void *arg)
{
    struct etcd *e = arg;

    pst_assert(e->magic == ETCD_MAGIC);
    pthread_mutex_lock(&e->lock);
    while (!e->ending) {
        if (e->lease && pst_now_ns() >= e->renew_ns)
            renew_once(e);
        else
            pst_cond_wait_until(&e->stir, &e->lock,
                                e->lease ? e->renew_ns : pst_deadline_ns(pst_now_ns(), e->ttl_s * 1000));
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* A lease of its own, which the other thread renews from now on. */
static int begin_lease(struct etcd *e, char *fault)
{
    struct pst_json *answer = NULL;
    uint64_t sent_ns = boot_ns(), ttl_s = 0;
    int64_t lease = 0;
    int r = pst_etcd_asker_ask(&e->asker, "/v3/lease/grant", pst_etcd_grant(e->ttl_s), &answer, fault);

    if (r == 0) {
        r = pst_etcd_get_lease(answer, &lease, &ttl_s);
        r = r == 0 && ttl_s == 0 ? -EPROTO : r;
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "etcd: an answer about a lease that makes no sense");
    }
    pst_json_free(answer);
    if (r < 0)
        return r;
    e->granted = lease;
    pthread_mutex_lock(&e->lock);
    e->lease = lease;
    note_lease(e, sent_ns, ttl_s);
    pthread_cond_signal(&e->stir);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

/* Return: 0, -errno with the reason in @fault: it ends by itself. */
static int revoke_lease(struct etcd *e, int64_t lease, char *fault)
{
    struct pst_json *answer = NULL;
    int r = pst_etcd_asker_ask(&e->asker, "/v3/lease/revoke", pst_etcd_lease(lease), &answer, fault);

    pst_assert(lease);
    pst_json_free(answer);
    return r;
}

static void set_made(struct etcd *e, int64_t revision)
{
    pthread_mutex_lock(&e->lock);
    e->made = revision;
    pthread_mutex_unlock(&e->lock);
}

static void note_stored(struct etcd *e)
{
    pthread_mutex_lock(&e->lock);
    e->hold.gone = false;
    pthread_mutex_unlock(&e->lock);
}

static void end_lease(struct etcd *e)
{
    char fault[PST_FAULT_BYTES];
    int64_t lease;

    pthread_mutex_lock(&e->lock);
    lease = *e->fault ? 0 : e->lease; /* what does not answer is not waited for */
    lose(e);
    e->made = 0;
    pthread_mutex_unlock(&e->lock);
    if (lease)
        (void)revoke_lease(e, lease, fault);
}

/* ---- taking ---- */

/* As a text that may be told. */
static void print_leader(const struct pst_etcd_entry *leader, char *text)
{
    size_t bytes = pst_min(leader->value.len, PST_MAP_ADDRESS_BYTES - 1);

    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = ((const unsigned char *)leader->value.data)[i];

        text[i] = c > ' ' && c < 0x7f ? (char)c : '?';
    }
    text[bytes] = '\0';
}

/* Whether another master than this one has a pool map to put back. Return: 0, -ENODATA. */
static int check_gone(const struct etcd *e, const struct pst_etcd_entry *map, char *fault)
{
    if (map->there || !e->seen || e->has)
        return 0;
    snprintf(
        fault, PST_FAULT_BYTES,
        "%.120s was there and is gone: who led last puts it back; start all masters anew to begin a pool",
        e->name);
    return -ENODATA;
}

/* Who leads, as far as it is another. Return: 0 nobody, PST_KEEPER_OTHERS, -ENODATA nobody can, -errno. */
static int look(struct etcd *e, char *fault)
{
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    bool own;
    int r;

    pst_etcd_then_get(&txn, e->leader_key);
    pst_etcd_then_look(&txn, e->map_key);
    r = carry_out(e, &txn, LEADER_BYTES_MAX, &done, fault);
    if (r < 0)
        return r;
    e->seen |= done.entries[1].there;
    own = done.entries[0].there && e->granted && done.entries[0].lease == e->granted;
    if (done.entries[0].there && !own) {
        print_leader(&done.entries[0], fault);
        r = PST_KEEPER_OTHERS;
    } else {
        r = check_gone(e, &done.entries[1], fault);
    }
    if (own && r == 0)
        r = revoke_lease(e, e->granted, fault); /* the answer to whoever made the key was lost */
    pst_etcd_done_fini(&done);
    return r;
}

/* Return: 0 this master leads, PST_KEEPER_OTHERS, -errno. */
static int run_for_it(struct etcd *e, char *fault)
{
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    int r;

    pst_assert(e->lease && !e->made);
    pst_etcd_if_made(&txn, e->leader_key, 0);
    pst_etcd_then_put(&txn, e->leader_key, pst_bytes_of(e->address), e->lease);
    pst_etcd_else_get(&txn, e->leader_key);
    r = carry_out(e, &txn, LEADER_BYTES_MAX, &done, fault);
    if (r < 0)
        return r;
    if (done.held)
        set_made(e, done.revision);
    else if (done.entries[0].there && done.entries[0].lease == e->lease)
        set_made(e, done.entries[0].made); /* a question before was carried out, and its answer was lost */
    else
        print_leader(&done.entries[0], fault);
    pst_etcd_done_fini(&done);
    return e->made ? 0 : PST_KEEPER_OTHERS;
}

/* What the masters before may have been told. @told: `grace` as it is. Return: 0, -errno. */
static int take_grace(struct etcd *e, const struct pst_etcd_entry *told, char *fault)
{
    char text[GRACE_DIGITS_MAX + 1] = "";
    const char *end = "";
    uint64_t ms = 0;
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    int r = 0;

    if (told->there && told->value.len <= GRACE_DIGITS_MAX && told->value.len > 0)
        memcpy(text, told->value.data, told->value.len);
    if (told->there && (pst_parse_digits(text, &end, &ms) < 0 || *end)) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: %.150s is no number of milliseconds", e->grace_key);
        return -EBADMSG;
    }
    e->keeper.grace_ms = pst_max(ms, e->settings->etcd_grace_ms);
    if (ms == e->keeper.grace_ms && told->there)
        return 0;
    snprintf(text, sizeof(text), "%" PRIu64, e->keeper.grace_ms);
    pst_etcd_if_made(&txn, e->leader_key, e->made);
    pst_etcd_then_put(&txn, e->grace_key, pst_bytes_of(text), 0);
    r = carry_out(e, &txn, LEADER_BYTES_MAX, &done, fault);
    if (r < 0)
        return r;
    if (!done.held) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: another master leads already");
        r = -ESTALE;
    }
    pst_etcd_done_fini(&done);
    return r;
}

/* What is there, as the one that leads. Return: 0, PST_KEEPER_SAME, PST_KEEPER_GONE, -errno. */
static int load(struct etcd *e, size_t bytes_max, struct pst_bytes *stored, char *fault)
{
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    struct pst_etcd_entry *map = &done.entries[0];
    int r;

    pst_etcd_if_made(&txn, e->leader_key, e->made);
    pst_etcd_then_get(&txn, e->map_key);
    pst_etcd_then_get(&txn, e->grace_key);
    r = carry_out(e, &txn, bytes_max, &done, fault);
    if (r < 0)
        return r;
    if (!done.held || done.count != 2) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: another master leads already");
        r = -ESTALE;
    } else {
        r = take_grace(e, &done.entries[1], fault);
    }
    if (r == 0)
        r = check_gone(e, map, fault);
    if (r == 0 && e->has && e->set == map->set) {
        r = PST_KEEPER_SAME;
    } else if (r == 0 && e->has && !map->there) {
        e->set = 0;
        r = PST_KEEPER_GONE;
    } else if (r == 0) {
        e->set = map->set;
        *stored = map->value;
        map->value = (struct pst_bytes){NULL, 0};
    }
    pst_etcd_done_fini(&done);
    return r;
}

/* ---- the keeper ---- */

static int etcd_take(struct pst_keeper *keeper, size_t bytes_max, struct pst_bytes *stored,
                     char fault[PST_FAULT_BYTES])
{
    struct etcd *e = etcd_of(keeper);
    int r;

    pst_assert(!stored->data);
    set_made(e, 0);
    r = look(e, fault);
    if (r == 0)
        r = begin_lease(e, fault);
    if (r == 0) {
        r = run_for_it(e, fault);
        if (r == 0)
            r = load(e, bytes_max, stored, fault);
        if (r < 0 || r == PST_KEEPER_OTHERS)
            end_lease(e);
    }
    if (r == PST_KEEPER_OTHERS)
        e->has = false; /* who leads it may change it, and nobody here remembers it any more */
    if (r < 0 || r == PST_KEEPER_OTHERS)
        return r;
    pthread_mutex_lock(&e->lock);
    e->hold.lost = e->lease == 0;
    hold_on(e);
    *e->fault = '\0';
    pthread_mutex_unlock(&e->lock);
    e->has = true;
    return r;
}

/* Whether nobody leads, and nobody has changed anything: etcd has lost all that it had, or `leader`. */
static bool is_gone(const struct etcd *e, const struct pst_etcd_done *done)
{
    const struct pst_etcd_entry *stored = &done->entries[1];

    return done->count == 2 && !done->entries[0].there && (!stored->there || stored->set == e->set);
}

/* Whether somebody has deleted the pool map under this master, which leads: no other has changed it. */
static bool is_deleted(const struct etcd *e, const struct pst_etcd_done *done)
{
    const struct pst_etcd_entry *leader = &done->entries[0];

    return done->count == 2 && leader->there && leader->made == e->made && !done->entries[1].there;
}

/* Whether what could not be put is there already, since an answer was lost. */
static bool is_there(const struct etcd *e, const struct pst_etcd_done *done, struct pst_bytes map)
{
    const struct pst_etcd_entry *leader = &done->entries[0], *stored = &done->entries[1];

    return done->count == 2 && leader->there && leader->made == e->made && stored->there &&
           stored->value.len == map.len && memcmp(stored->value.data, map.data, map.len) == 0;
}

static int etcd_swap(struct pst_keeper *keeper, uint64_t version_before, uint64_t version,
                     struct pst_bytes map, char fault[PST_FAULT_BYTES])
{
    struct etcd *e = etcd_of(keeper);
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_etcd_done done;
    bool lost = false;
    int r;

    pst_assert(version == version_before + 1 && map.len > 0 && e->has);
    if (!e->made) { /* until it is taken again */
        snprintf(fault, PST_FAULT_BYTES, "this master does not lead");
        return -EAGAIN;
    }
    pst_etcd_if_made(&txn, e->leader_key, e->made);
    pst_etcd_if_set(&txn, e->map_key, e->set);
    pst_etcd_then_put(&txn, e->map_key, map, 0);
    pst_etcd_else_get(&txn, e->leader_key);
    pst_etcd_else_get(&txn, e->map_key);
    r = carry_out(e, &txn, pst_stored_bytes_max(PST_MAP_MEMBERS_MAX), &done, fault);
    if (r < 0)
        return r;
    if (done.held) {
        e->set = done.revision;
    } else if (is_there(e, &done, map)) {
        e->set = done.entries[1].set;
    } else if (is_deleted(e, &done)) {
        snprintf(fault, PST_FAULT_BYTES, "it was deleted in etcd, and is put back");
        e->set = 0; /* and made by the same that is tried again */
        r = -EAGAIN;
    } else if (is_gone(e, &done)) {
        snprintf(fault, PST_FAULT_BYTES, "etcd has lost %.150s",
                 done.entries[1].there ? e->leader_key : "it");
        lost = true;
        r = -EAGAIN;
    } else {
        snprintf(fault, PST_FAULT_BYTES, "another master leads, or has changed it");
        lost = true;
        r = -ESTALE;
    }
    pst_etcd_done_fini(&done);
    e->has = r != -ESTALE;
    e->seen |= r == 0;
    if (r == 0)
        note_stored(e);
    if (lost)
        end_lease(e);
    return r;
}

static struct pst_hold etcd_hold(struct pst_keeper *keeper, char fault[PST_FAULT_BYTES])
{
    struct etcd *e = etcd_of(keeper);
    struct pst_hold hold;

    pthread_mutex_lock(&e->lock);
    hold = e->hold;
    if (fault)
        memcpy(fault, e->fault, sizeof(e->fault));
    pthread_mutex_unlock(&e->lock);
    return hold;
}

static void etcd_give(struct pst_keeper *keeper)
{
    struct etcd *e = etcd_of(keeper);

    e->has = false;
    end_lease(e);
}

static void etcd_close(struct pst_keeper *keeper)
{
    struct etcd *e = etcd_of(keeper);

    if (e->running) {
        pthread_mutex_lock(&e->lock);
        e->ending = true;
        pthread_cond_signal(&e->stir);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
        end_lease(e);
    }
    pst_etcd_asker_fini(&e->asker);
    pst_etcd_asker_fini(&e->renewer);
    pst_etcd_asker_fini(&e->looker);
    pthread_cond_destroy(&e->stir);
    pthread_mutex_destroy(&e->lock);
    e->magic = 0;
    free(e);
}

static const struct pst_keeper_ops etcd_ops = {.shared = true,
                                               .take = etcd_take,
                                               .swap = etcd_swap,
                                               .hold = etcd_hold,
                                               .give = etcd_give,
                                               .close = etcd_close};

/* ---- opening ---- */

/* What cannot be is said before anything begins. Return: 0, -errno. */
static int check_settings(const struct pst_etcd_settings *settings, char *fault)
{
    const char *const files[] = {settings->etcd_ca, settings->etcd_cert, settings->etcd_key};
    const char *prefix = settings->etcd_prefix;
    char password[PST_FAULT_BYTES];
    int r = 0;

    for (uint32_t i = 0; i < pst_count_of(files) && r == 0; i++) {
        if (!files[i] || access(files[i], R_OK) == 0)
            continue;
        r = -errno;
        snprintf(fault, PST_FAULT_BYTES, "etcd: %.150s: %s", files[i], strerror(-r));
    }
    if (r == 0 && (!prefix || strlen(prefix) > PREFIX_BYTES_MAX)) {
        snprintf(fault, PST_FAULT_BYTES, "etcd_prefix: 1 to %d bytes", PREFIX_BYTES_MAX);
        r = -EINVAL;
    }
    if (r == 0 && !settings->etcd_cert != !settings->etcd_key) {
        snprintf(fault, PST_FAULT_BYTES, "etcd_cert and etcd_key: neither is of use without the other");
        r = -EINVAL;
    }
    if (r == 0 && !settings->etcd_user != !settings->etcd_password_file) {
        snprintf(fault, PST_FAULT_BYTES,
                 "etcd_user and etcd_password_file: neither is of use without the other");
        r = -EINVAL;
    }
    if (r == 0 && settings->etcd_user) {
        r = pst_secret_read(settings->etcd_password_file, password, sizeof(password), fault);
        explicit_bzero(password, sizeof(password));
    }
    return r < 0 ? r : 0;
}

static int open_all(struct etcd *e, char *fault)
{
    const struct pst_etcd_settings *settings = e->settings;
    size_t answer_bytes_max = pst_stored_bytes_max(PST_MAP_MEMBERS_MAX) / 3 * 4 + ANSWER_MORE_BYTES;
    uint64_t renewal_ms = settings->etcd_lease_ms / 4;
    int r = check_settings(settings, fault);

    /* Whoever waits longer for a renewal has no time for another server. */
    if (r == 0)
        r = pst_etcd_asker_init(&e->renewer, settings, renewal_ms, ANSWER_MORE_BYTES, fault);
    e->renewer.known = true; /* it asks without a token first: renewals need no user */
    if (r == 0)              /* the next renewal waits for it */
        r = pst_etcd_asker_init(&e->looker, settings, renewal_ms / 4, ANSWER_MORE_BYTES, fault);
    if (r == 0)
        r = pst_etcd_asker_init(&e->asker, settings, 2 * renewal_ms, answer_bytes_max, fault);
    if (r < 0)
        return r;
    snprintf(e->map_key, sizeof(e->map_key), "%s/map", settings->etcd_prefix);
    snprintf(e->leader_key, sizeof(e->leader_key), "%s/leader", settings->etcd_prefix);
    snprintf(e->grace_key, sizeof(e->grace_key), "%s/grace", settings->etcd_prefix);
    snprintf(e->name, sizeof(e->name), "etcd's %s", e->map_key);
    e->keeper.name = e->name;
    e->keeper.grace_ms = settings->etcd_grace_ms;
    r = -pthread_create(&e->thread, NULL, renew_main, e);
    e->running = r == 0;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "etcd's thread: %s", strerror(-r));
    return r;
}

int pst_etcd_open(const struct pst_etcd_settings *settings, const char *address, struct pst_keeper **out,
                  char fault[PST_FAULT_BYTES])
{
    struct etcd *e = calloc(1, sizeof(*e));
    int r;

    pst_assert(settings->etcd);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!e)
        return -ENOMEM;
    e->magic = ETCD_MAGIC;
    e->settings = settings;
    e->keeper.ops = &etcd_ops;
    e->ttl_s = pst_div_up(settings->etcd_lease_ms, 1000);
    e->hold.lost = true;
    snprintf(e->address, sizeof(e->address), "%s", address);
    pthread_mutex_init(&e->lock, NULL);
    pst_cond_init(&e->stir);
    r = open_all(e, fault);
    if (r < 0) {
        etcd_close(&e->keeper);
        return r;
    }
    *out = &e->keeper;
    return 0;
}
