/* SPDX-License-Identifier: Apache-2.0 */
/* casts.c: the source's side. What may be received is a group and a key; its memory is looked up when the
 * first member of the group joins, and then belongs to the broadcast, whatever becomes of its owner. */
#include "agent/pod/casts_priv.h"
#include "agent/pod/gathering_priv.h"

#include "base/clock.h"
#include "files/relay/broadcasts.h"

#include <stdio.h>

struct cast {
    struct pst_list link;
    char group[PST_TREE_GROUP_BYTES_MAX + 1]; /* "": any */
    char key[PST_KEY_CAP];
    const char *const *keys; /* borrowed; NULL: all under and below @key */
    uint32_t key_count;
};

struct pod_casts {
    pthread_mutex_t lock;
    struct pst_list list;
    uint32_t count;
    struct pst_broadcasts *rows;     /* NULL: nothing was served yet */
    struct pst_carry_server *server; /* of them */
};

/* ---- what is served ---- */

/* Under the lock. */
static struct cast *casts_find(struct pod_casts *casts, const char *group, const char *key)
{
    pst_assert(casts->count <= POD_CASTS_MAX);
    pst_list_each (it, &casts->list) {
        struct cast *cast = pst_list_entry(it, struct cast, link);

        if (strcmp(cast->group, group) == 0 && strcmp(cast->key, key) == 0)
            return cast;
    }
    return NULL;
}

/* Under the lock. */
static void cast_forget(struct pod_casts *casts, struct cast *cast)
{
    pst_assert(casts->count > 0);
    casts->count--;
    pst_list_remove(&cast->link);
    free(cast);
}

/* ---- what is sent ---- */

/* Under the lock: those that a cast lists, in their order, else all under and below its key. */
static int casts_collect(struct pst_pod *pod, const struct cast *cast, struct gathering *gathering,
                         char fault[PST_FAULT_BYTES])
{
    int r = 0;

    if (!cast->keys)
        return tensors_find_below(pod, cast->key, gathering_add, gathering, fault);
    for (uint32_t i = 0; r == 0 && i < cast->key_count; i++)
        r = tensors_find(pod, cast->keys[i], gathering_add, gathering, fault);
    return r;
}

static int gather(void *ctx, const char *group, const char *name, struct pst_broadcast_files *out,
                  char fault[PST_FAULT_BYTES])
{
    struct pst_pod *pod = ctx;
    struct gathering *gathering = gathering_open();
    const struct cast *cast;
    int r = gathering ? 0 : -ENOMEM;

    pthread_mutex_lock(&pod->casts->lock);
    cast = casts_find(pod->casts, group, name);
    if (!cast)
        cast = casts_find(pod->casts, "", name);
    if (r == 0 && !cast) {
        snprintf(fault, PST_FAULT_BYTES, "Key not found: %.150s is served to no such group", name);
        r = -ENOENT;
    }
    if (r == 0)
        r = casts_collect(pod, cast, gathering, fault);
    pthread_mutex_unlock(&pod->casts->lock);
    if (r == 0)
        r = gathering_finish(gathering, out, fault);
    gathering_close(gathering);
    if (r < 0 && !fault[0])
        snprintf(fault, PST_FAULT_BYTES, "tensors of '%.100s': %s", name,
                 r == -E2BIG ? "they lie in too many memories" : strerror(-r));
    return r;
}

/* ---- the port ---- */

static int resolve(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES])
{
    (void)ctx, (void)name, (void)writes, (void)folder_fd, (void)leaf;
    snprintf(fault, PST_FAULT_BYTES, "an agent serves broadcasts of tensors here, and no trees");
    return -EPERM;
}

static int serve(void *ctx, struct link *link, uint32_t operation, const char *name)
{
    pst_assert(((struct pst_pod *)ctx)->casts->rows);
    return pst_broadcasts_serve(((struct pst_pod *)ctx)->casts->rows, link, operation, name);
}

/* Under the lock. Return: 0, or -errno with a text in @fault. */
static int port_open(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    const struct pst_broadcasts_settings rows = {.gather = gather, .ctx = pod};
    const struct pst_carry_server_settings settings = {.host = pod->rsync_host[0] ? pod->rsync_host : NULL,
                                                       .port = (uint16_t)pod->settings->agent_broadcast_port,
                                                       .token = {pod->token, pod->token_bytes},
                                                       .stall_ms = PST_CARRY_STALL_MS,
                                                       .resolve = resolve,
                                                       .serve = serve,
                                                       .ctx = pod};
    struct pod_casts *casts = pod->casts;
    char line[64];
    int r;

    if (casts->server)
        return 0;
    if (!casts->rows)
        casts->rows = pst_broadcasts_open(&rows);
    if (!casts->rows)
        return -ENOMEM;
    r = pst_carry_server_open(&settings, &casts->server, fault);
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "agent: broadcasts on port %u", pst_carry_server_port(casts->server));
    pod->log(pod->log_ctx, line);
    return 0;
}

/* ---- serving ---- */

/* One of them is enough. */
static int see_one(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    (void)ctx, (void)fd, (void)memory;
    pst_assert(tensor->memory);
    return -EALREADY;
}

static int casts_add(struct pod_casts *casts, const char *group, const char *key, struct cast **out,
                     char fault[PST_FAULT_BYTES])
{
    struct cast *cast = casts_find(casts, group, key);

    pst_assert(*key);
    *out = cast;
    if (cast)
        return 0;
    if (casts->count == POD_CASTS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "this pod serves %d broadcasts already", POD_CASTS_MAX);
        return -ENOSPC;
    }
    cast = calloc(1, sizeof(*cast));
    if (!cast)
        return -ENOMEM;
    snprintf(cast->group, sizeof(cast->group), "%s", group);
    snprintf(cast->key, sizeof(cast->key), "%s", key);
    pst_list_push_back(&casts->list, &cast->link);
    casts->count++;
    *out = cast;
    return 0;
}

int casts_serve(struct pst_pod *pod, const char *group, const char *key, uint16_t *port,
                char fault[PST_FAULT_BYTES])
{
    struct pod_casts *casts = pod->casts;
    struct cast *cast;
    int r = tensors_find_below(pod, key, see_one, NULL, fault);

    pst_assert(strlen(group) <= PST_TREE_GROUP_BYTES_MAX);
    if (r != -EALREADY)
        return r;
    pthread_mutex_lock(&casts->lock);
    r = port_open(pod, fault);
    if (r == 0)
        r = casts_add(casts, group, key, &cast, fault);
    if (r == 0)
        *port = pst_carry_server_port(casts->server);
    pthread_mutex_unlock(&casts->lock);
    return r;
}

int casts_lend(struct pst_pod *pod, const char *group, const char *const *keys, uint32_t key_count,
               uint16_t *port, char fault[PST_FAULT_BYTES])
{
    struct pod_casts *casts = pod->casts;
    struct cast *cast;
    int r;

    pst_assert(*group && key_count > 0);
    pthread_mutex_lock(&casts->lock);
    r = port_open(pod, fault);
    if (r == 0)
        r = casts_add(casts, group, group, &cast, fault);
    if (r == 0) {
        pst_assert(!cast->keys);
        cast->keys = keys;
        cast->key_count = key_count;
        *port = pst_carry_server_port(casts->server);
    }
    pthread_mutex_unlock(&casts->lock);
    return r;
}

void casts_withdraw(struct pst_pod *pod, const char *group)
{
    struct cast *cast;

    pthread_mutex_lock(&pod->casts->lock);
    cast = casts_find(pod->casts, group, group);
    pst_assert(cast && cast->keys);
    cast_forget(pod->casts, cast);
    pthread_mutex_unlock(&pod->casts->lock);
}

void casts_sweep(struct pst_pod *pod)
{
    struct pod_casts *casts = pod->casts;
    char ignored[PST_FAULT_BYTES];

    pthread_mutex_lock(&casts->lock);
    pst_list_each_safe (it, &casts->list) {
        struct cast *cast = pst_list_entry(it, struct cast, link);

        if (!cast->keys && tensors_find_below(pod, cast->key, see_one, NULL, ignored) != -EALREADY)
            cast_forget(casts, cast);
    }
    if (casts->rows)
        pst_broadcasts_forget(casts->rows, pst_now_ms());
    pthread_mutex_unlock(&casts->lock);
}

/* ---- beginning and end ---- */

int casts_open(struct pst_pod *pod)
{
    struct pod_casts *casts = calloc(1, sizeof(*casts));

    if (!casts)
        return -ENOMEM;
    pthread_mutex_init(&casts->lock, NULL);
    pst_list_init(&casts->list);
    pod->casts = casts;
    return 0;
}

void casts_close(struct pst_pod *pod)
{
    struct pod_casts *casts = pod->casts;

    if (!casts)
        return;
    pst_assert(!pod->acceptor);
    pst_broadcasts_stop(casts->rows);
    pst_carry_server_close(casts->server);
    pst_broadcasts_close(casts->rows);
    pst_list_each_safe (it, &casts->list)
        cast_forget(casts, pst_list_entry(it, struct cast, link));
    pst_assert(casts->count == 0);
    pthread_mutex_destroy(&casts->lock);
    free(casts);
    pod->casts = NULL;
}
