/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c: the manifests and lists of all connections of a server, counted. */
#include "files/carry/budget.h"

#include "base/wait.h"

enum {
    LISTING_MAX = 4,
    LOOK_NS = 500000000,
    SMALL_BYTES = 1 << 20, /* a put of so little passes, however much others hold */
};

/* Gets, which wait, leave a part to puts, which cannot. */
static bool budget_lists(const struct carry_budget *budget)
{
    pst_assert(budget->bytes_max > 0);
    return budget->listing < LISTING_MAX && budget->bytes < budget->bytes_max - budget->bytes_max / 4;
}

void carry_budget_init(struct carry_budget *budget, uint64_t bytes_max)
{
    pst_assert(bytes_max > 0);
    *budget = (struct carry_budget){.bytes_max = bytes_max};
    pthread_mutex_init(&budget->lock, NULL);
    pst_cond_init(&budget->freed);
}

void carry_budget_fini(struct carry_budget *budget)
{
    pst_assert(budget->bytes == 0);
    pst_assert(budget->listing == 0);
    pthread_cond_destroy(&budget->freed);
    pthread_mutex_destroy(&budget->lock);
}

/* Under the lock: the share has grown to @bytes. */
static void share_set(struct carry_share *share, uint64_t bytes)
{
    struct carry_budget *budget = share->budget;

    pst_assert(budget->bytes >= share->bytes);
    budget->bytes = budget->bytes - share->bytes + bytes;
    share->bytes = bytes;
    pst_assert(budget->bytes >= share->bytes);
    pthread_cond_broadcast(&budget->freed);
}

int carry_share_list(struct carry_share *share, struct link *link)
{
    struct carry_budget *budget = share->budget;
    int r = 0;

    if (!budget)
        return 0;
    pst_assert(share->bytes == 0);
    pthread_mutex_lock(&budget->lock);
    while (r == 0 && !budget_lists(budget)) {
        pst_cond_wait_until(&budget->freed, &budget->lock, pst_now_ns() + LOOK_NS);
        pthread_mutex_unlock(&budget->lock);
        r = link_alive(link);
        pthread_mutex_lock(&budget->lock);
    }
    budget->listing += r == 0;
    pst_assert(budget->listing <= LISTING_MAX);
    pthread_mutex_unlock(&budget->lock);
    return r;
}

void carry_share_listed(struct carry_share *share, const struct pst_manifest *m)
{
    if (!share->budget)
        return;
    pthread_mutex_lock(&share->budget->lock);
    pst_assert(share->budget->listing > 0);
    share->budget->listing--;
    share_set(share, pst_manifest_bytes(m));
    pthread_mutex_unlock(&share->budget->lock);
}

int carry_share_set(struct carry_share *share, uint64_t bytes)
{
    int r = 0;

    if (!share->budget)
        return 0;
    pthread_mutex_lock(&share->budget->lock);
    if (bytes > pst_max(share->bytes, SMALL_BYTES) &&
        share->budget->bytes - share->bytes + bytes > share->budget->bytes_max)
        r = -EBUSY;
    else
        share_set(share, bytes);
    pthread_mutex_unlock(&share->budget->lock);
    return r;
}

void carry_share_end(struct carry_share *share)
{
    if (!share->budget)
        return;
    pthread_mutex_lock(&share->budget->lock);
    share_set(share, 0);
    pthread_mutex_unlock(&share->budget->lock);
}
