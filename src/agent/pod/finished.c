/* SPDX-License-Identifier: Apache-2.0 */
/*
 * finished.c: trees of broadcasts that lie here whole, and other pods that wait for one. A tree is offered
 * under a key that no process can register, since it has a newline, and an hour after its last use it is not
 * any more.
 */
#include "agent/pod/pod_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"

#include <stdio.h>

enum {
    LOOK_MS = 500, /* between two looks at whether a waiting client is still there */
    NAME_BYTES = PST_TREE_GROUP_BYTES_MAX + 1 + PST_KEY_CAP,
};

struct finished {
    struct pst_list link;
    uint64_t used_ms; /* pst_now_ns() clock */
    struct pod_place place;
    char *path;
    char name[]; /* "GROUP\nKEY" */
};

static void finished_name(const char *group, const char *key, char name[NAME_BYTES])
{
    int bytes = snprintf(name, NAME_BYTES, "%s\n%s", group, key);

    pst_assert(bytes > 0 && bytes < NAME_BYTES); /* frames.c has measured both */
}

static void finished_free(struct finished *one)
{
    pst_assert(one->path);
    free(one->path);
    free(one);
}

/* Under the lock, as finished_forget(). */
static struct finished *finished_find(struct pst_pod *pod, const char *name)
{
    pst_assert(pod->finished_count <= POD_FINISHED_MAX);
    pst_list_each (it, &pod->finished) {
        struct finished *one = pst_list_entry(it, struct finished, link);

        if (strcmp(one->name, name) == 0)
            return one;
    }
    return NULL;
}

static void finished_forget(struct pst_pod *pod, struct finished *one)
{
    pst_assert(pod->finished_count > 0);
    pst_assert(!pst_list_empty(&one->link));
    pst_list_remove(&one->link);
    pod->finished_count--;
    finished_free(one);
}

static struct finished *finished_new(const char *name, const char *path, const struct pod_place *place)
{
    struct finished *one = calloc(1, sizeof(*one) + strlen(name) + 1);

    pst_assert(strlen(name) < NAME_BYTES);
    if (!one)
        return NULL;
    one->path = strdup(path);
    if (!one->path) {
        free(one);
        return NULL;
    }
    one->place = *place;
    one->used_ms = pst_now_ms();
    memcpy(one->name, name, strlen(name) + 1);
    return one;
}

/* Lets @one take the place of a tree with its name, if there is one. Return: 0, -ENOSPC. */
static int finished_put(struct pst_pod *pod, struct finished *one)
{
    struct finished *old;
    int r = 0;

    pthread_mutex_lock(&pod->finished_lock);
    old = finished_find(pod, one->name);
    if (old)
        finished_forget(pod, old);
    else if (pod->finished_count == POD_FINISHED_MAX)
        r = -ENOSPC;
    if (r == 0) {
        pst_assert(pod->finished_count < POD_FINISHED_MAX);
        pst_list_push_back(&pod->finished, &one->link);
        pod->finished_count++;
        pst_assert(pod->finished_count <= POD_FINISHED_MAX);
        pthread_cond_broadcast(&pod->finished_changed);
    }
    pthread_mutex_unlock(&pod->finished_lock);
    return r;
}

/* Under finishing_lock: of two that finish one tree at once, the later offer is the later tree. */
static int finished_offer(struct pst_pod *pod, const char *name, const char *path,
                          char fault[PST_FAULT_BYTES])
{
    struct finished *one;
    struct pod_place place;
    int r = offers_add(pod, name, path, false, 0, &place, fault);

    if (r < 0)
        return r;
    one = finished_new(name, path, &place);
    r = one ? finished_put(pod, one) : -ENOMEM;
    if (r == 0)
        return 0;
    snprintf(fault, PST_FAULT_BYTES, "this pod keeps no more trees: %s", strerror(-r));
    if (one)
        finished_free(one);
    pthread_mutex_lock(&pod->finished_lock);
    one = finished_find(pod, name);
    if (one) /* its offer has just been replaced */
        finished_forget(pod, one);
    pthread_mutex_unlock(&pod->finished_lock);
    offers_remove(pod, name, 0);
    return r;
}

int finished_add(struct pst_pod *pod, const char *group, const char *key, const char *path,
                 char fault[PST_FAULT_BYTES])
{
    char name[NAME_BYTES];
    int r;

    finished_name(group, key, name);
    pthread_mutex_lock(&pod->finishing_lock);
    r = finished_offer(pod, name, path, fault);
    pthread_mutex_unlock(&pod->finishing_lock);
    return r;
}

/* Until there is news, or it is time to look whether the caller is still there. */
static void finished_pause(struct pst_pod *pod, uint64_t until_ms)
{
    uint64_t wake_ms = pst_min(until_ms, pst_now_ms() + LOOK_MS);

    pst_cond_wait_until(&pod->finished_changed, &pod->finished_lock, pst_ns_of_ms(wake_ms));
}

int finished_wait(struct pst_pod *pod, const struct pod_caller *caller, const char *group, const char *key,
                  uint64_t timeout_ms, struct pod_place *place, char path[PATH_MAX])
{
    uint64_t until_ms = pst_now_ms() + pst_min(timeout_ms, POD_WAIT_MS_MAX);
    struct finished *one;
    char name[NAME_BYTES];
    int r = 0;

    finished_name(group, key, name);
    pthread_mutex_lock(&pod->finished_lock);
    while (!(one = finished_find(pod, name)) && r == 0) {
        if (pod->stopping || caller_is_gone(caller))
            r = -ECANCELED;
        else if (pst_now_ms() >= until_ms)
            r = -ETIMEDOUT;
        else
            finished_pause(pod, until_ms);
    }
    pst_assert(one || r < 0);
    if (one) {
        r = 0;
        one->used_ms = pst_now_ms();
        *place = one->place;
        snprintf(path, PATH_MAX, "%s", one->path);
    }
    pthread_mutex_unlock(&pod->finished_lock);
    return r;
}

void finished_sweep(struct pst_pod *pod)
{
    uint64_t now_ms;

    pthread_mutex_lock(&pod->finishing_lock);
    pthread_mutex_lock(&pod->finished_lock);
    now_ms = pst_now_ms(); /* under the lock: no use is later */
    pst_list_each_safe (it, &pod->finished) {
        struct finished *one = pst_list_entry(it, struct finished, link);

        pst_assert(now_ms >= one->used_ms);
        if (now_ms - one->used_ms < POD_FINISHED_LIFE_MS)
            continue;
        offers_remove(pod, one->name, 0);
        finished_forget(pod, one);
    }
    pthread_mutex_unlock(&pod->finished_lock);
    pthread_mutex_unlock(&pod->finishing_lock);
}

void finished_stop(struct pst_pod *pod)
{
    pthread_mutex_lock(&pod->finished_lock);
    pst_assert(!pod->stopping);
    pod->stopping = true;
    pthread_cond_broadcast(&pod->finished_changed);
    pthread_mutex_unlock(&pod->finished_lock);
}

void finished_close(struct pst_pod *pod)
{
    pst_assert(!pod->acceptor); /* nobody waits */
    pst_list_each_safe (it, &pod->finished)
        finished_forget(pod, pst_list_entry(it, struct finished, link));
    pst_assert(pod->finished_count == 0);
}
