/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds.c: which rounds there are, and who has asked for each. One that is over stays for a minute, so that
 * a participant that asks late hears how it went, and does not begin it anew.
 */
#include "agent/pod/rounds_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"

#include <stdio.h>

enum { LOOK_MS = 500 }; /* between two looks at whether a participant is still there */

struct round {
    struct pst_list link;
    struct pst_pod *pod;
    struct pst_hash128 id;
    const struct pod_caller *caller; /* whose thread does the work; NULL: it is done */
    /* Under the lock: */
    uint32_t waiting; /* who wait for that thread */
    uint32_t asked;
    char (*participants)[POD_PARTICIPANT_BYTES]; /* that have asked */
    int result;
    enum round_way way;
    char fault[PST_FAULT_BYTES];
    uint64_t done_ms;
};

struct pod_rounds {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pst_list list;
    uint32_t count;
    bool stopping;
};

/* ---- under the lock ---- */

static bool round_knows(const struct round *round, const char *participant)
{
    pst_assert(round->asked <= POD_ROUND_PARTICIPANTS_MAX);
    for (uint32_t i = 0; i < round->asked; i++)
        if (strcmp(round->participants[i], participant) == 0)
            return true;
    return false;
}

static int round_note(struct round *round, const char *participant)
{
    pst_assert(*participant);
    if (round_knows(round, participant))
        return 0;
    if (round->asked == POD_ROUND_PARTICIPANTS_MAX)
        return -E2BIG;
    snprintf(round->participants[round->asked++], POD_PARTICIPANT_BYTES, "%s", participant);
    return 0;
}

/* One underway, else the last that is over and that this participant has not asked for. */
static struct round *rounds_find(struct pod_rounds *all, const struct pst_hash128 *id,
                                 const char *participant)
{
    struct round *found = NULL;

    pst_list_each (it, &all->list) {
        struct round *round = pst_list_entry(it, struct round, link);

        if (pst_hash128_equal(&round->id, id) && (!found || !found->caller))
            found = round;
    }
    return found && (found->caller || !round_knows(found, participant)) ? found : NULL;
}

static void round_forget(struct pod_rounds *all, struct round *round)
{
    pst_assert(!round->caller && round->waiting == 0);
    pst_assert(all->count > 0);
    all->count--;
    pst_list_remove(&round->link);
    free(round->participants);
    free(round);
}

/* Those that are over, the oldest first: all that have been for so long, or one of them. */
static void rounds_forget(struct pod_rounds *all, uint64_t life_ms, bool one)
{
    uint64_t now_ms = pst_now_ms();

    pst_assert(all->count <= POD_ROUNDS_MAX);
    pst_list_each_safe (it, &all->list) {
        struct round *round = pst_list_entry(it, struct round, link);

        if (round->caller || round->waiting > 0 || now_ms < round->done_ms + life_ms)
            continue;
        round_forget(all, round);
        if (one)
            return;
    }
}

static int rounds_begin(struct frame *frame, const struct pst_hash128 *id, struct round **out)
{
    struct pod_rounds *all = frame->pod->rounds;
    struct round *round;

    pst_assert(!all->stopping);
    if (all->count == POD_ROUNDS_MAX)
        rounds_forget(all, 0, true);
    if (all->count == POD_ROUNDS_MAX)
        return -EBUSY;
    round = calloc(1, sizeof(*round));
    if (!round)
        return -ENOMEM;
    *round = (struct round){.pod = frame->pod,
                            .id = *id,
                            .caller = frame->caller,
                            .participants = calloc(POD_ROUND_PARTICIPANTS_MAX, POD_PARTICIPANT_BYTES)};
    if (!round->participants) {
        free(round);
        return -ENOMEM;
    }
    pst_list_push_back(&all->list, &round->link);
    all->count++;
    *out = round;
    return 0;
}

/* ---- work, and waiting for it ---- */

static bool nobody_waits(void *ctx)
{
    struct round *round = ctx;
    struct pod_rounds *all = round->pod->rounds;
    bool over;

    pst_assert(round->pod);
    pthread_mutex_lock(&all->lock);
    over = all->stopping || (round->waiting == 0 && caller_is_gone(round->caller));
    pthread_mutex_unlock(&all->lock);
    return over;
}

static void round_do(struct frame *frame, struct round *round, round_work work)
{
    const struct pod_patience patience = {nobody_waits, round};
    struct pod_rounds *all = frame->pod->rounds;
    enum round_way way = ROUND_COPIED;
    char fault[PST_FAULT_BYTES] = "";
    int r;

    pst_assert(round->caller == frame->caller);
    pthread_mutex_unlock(&all->lock);
    r = work(frame, &patience, &way, fault);
    pthread_mutex_lock(&all->lock);
    pst_assert(r == 0 || fault[0]);
    round->caller = NULL;
    round->result = r;
    round->way = way;
    memcpy(round->fault, fault, sizeof(fault));
    round->done_ms = pst_now_ms();
    pthread_cond_broadcast(&all->changed);
}

static int round_wait(struct frame *frame, struct round *round)
{
    struct pod_rounds *all = frame->pod->rounds;
    int r = 0;

    pst_assert(frame->caller != round->caller);
    round->waiting++;
    while (r == 0 && round->caller) {
        if (all->stopping || caller_is_gone(frame->caller))
            r = -ECANCELED;
        else
            pst_cond_wait_until(&all->changed, &all->lock, pst_deadline_ns(pst_now_ns(), LOOK_MS));
    }
    pst_assert(round->waiting > 0);
    round->waiting--;
    return r;
}

int rounds_share(struct frame *frame, const struct pst_hash128 *id, bool is_unique, const char *participant,
                 round_work work, enum round_way *way)
{
    struct pod_rounds *all = frame->pod->rounds;
    struct round *round;
    int r = 0;

    pst_assert(strlen(participant) < POD_PARTICIPANT_BYTES);
    pthread_mutex_lock(&all->lock);
    round = rounds_find(all, id, participant);
    if (round && !round->caller && !is_unique)
        round = NULL; /* perhaps one of before, with the same words */
    if (!round && (r = all->stopping ? -ECANCELED : rounds_begin(frame, id, &round)) == 0) {
        round_note(round, participant);
        round_do(frame, round, work);
    } else if (r == 0 && (r = round_note(round, participant)) == 0) {
        r = round_wait(frame, round);
    }
    if (r == 0) {
        r = round->result;
        *way = round->way;
        memcpy(frame->fault, round->fault, sizeof(frame->fault));
    }
    pthread_mutex_unlock(&all->lock);
    if (r < 0 && !frame->fault[0])
        snprintf(frame->fault, sizeof(frame->fault), "%s",
                 r == -EBUSY       ? "this agent executes too many groups at once"
                 : r == -E2BIG     ? "too many participants of this pod have asked for this group"
                 : r == -ECANCELED ? "this agent is stopping"
                                   : strerror(-r));
    return r;
}

void rounds_sweep(struct pst_pod *pod)
{
    pthread_mutex_lock(&pod->rounds->lock);
    rounds_forget(pod->rounds, POD_ROUND_LIFE_MS, false);
    pthread_mutex_unlock(&pod->rounds->lock);
}

/* ---- beginning and end ---- */

int rounds_open(struct pst_pod *pod)
{
    struct pod_rounds *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    pthread_mutex_init(&all->lock, NULL);
    pst_cond_init(&all->changed);
    pst_list_init(&all->list);
    pod->rounds = all;
    return 0;
}

void rounds_stop(struct pst_pod *pod)
{
    if (!pod->rounds)
        return;
    pthread_mutex_lock(&pod->rounds->lock);
    pod->rounds->stopping = true;
    pthread_cond_broadcast(&pod->rounds->changed);
    pthread_mutex_unlock(&pod->rounds->lock);
}

void rounds_close(struct pst_pod *pod)
{
    struct pod_rounds *all = pod->rounds;

    if (!all)
        return;
    pst_assert(!pod->acceptor); /* nobody asks */
    rounds_forget(all, 0, false);
    pst_assert(pst_list_empty(&all->list) && all->count == 0);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
    pod->rounds = NULL;
}
