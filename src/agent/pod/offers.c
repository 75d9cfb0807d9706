/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offers.c: paths that this pod serves. Each offer has a module of the rsync daemon for itself, with a name
 * that nobody can guess, read-only. An offer ends with its owner, whom a PID names together with the time at
 * which that process began, since PIDs come again.
 */
#include "agent/pod/pod_priv.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

struct offer {
    struct pst_list link;
    pid_t pid; /* 0: nobody's */
    uint64_t pid_began;
    uint64_t offered_ms; /* since 1970 */
    bool named;          /* the module has the path under its name */
    char module[POD_MODULE_BYTES];
    char *path;
    char key[];
};

/* When @pid began, in the kernel's ticks. Return: 0: there is no such process. */
static uint64_t process_began(pid_t pid)
{
    char name[32], text[1024];
    pst_cleanup_close int fd = -1;
    unsigned long long began = 0;
    const char *at;
    ssize_t n;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    at = strrchr(text, ')'); /* the name of a program may have blanks and brackets */
    /* state is field 3, its start field 22 */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%llu", &began) == 1 ? began : 0;
}

static bool offer_lives(const struct offer *offer)
{
    return offer->pid == 0 || process_began(offer->pid) == offer->pid_began;
}

/* Under the lock, as all below. */
static struct offer *offers_find(struct pst_pod *pod, const char *key)
{
    pst_list_each (it, &pod->offers) {
        struct offer *offer = pst_list_entry(it, struct offer, link);

        if (strcmp(offer->key, key) == 0)
            return offer;
    }
    return NULL;
}

static void offer_withdraw(struct pst_pod *pod, struct offer *offer)
{
    pst_assert(pod->offer_count > 0);
    /* If the settings cannot be written, the module stays until the agent ends; its name is forgotten. */
    if (pod->rsyncd)
        pst_rsyncd_remove(pod->rsyncd, offer->module);
    pst_list_remove(&offer->link);
    pod->offer_count--;
    free(offer->path);
    free(offer);
}

static void offer_place(const struct pst_pod *pod, const struct offer *offer, struct pod_place *place)
{
    struct stat st;
    bool is_file = stat(offer->path, &st) == 0 && S_ISREG(st.st_mode);

    pst_assert(pod->rsyncd && offer->module[0]);
    place->rsync_port = pst_rsyncd_port(pod->rsyncd);
    snprintf(place->rsync_path, sizeof(place->rsync_path), "%s%s%.*s", offer->module, is_file ? "/" : "",
             is_file ? NAME_MAX : 0, strrchr(offer->path, '/') + 1);
}

static int offers_start_rsyncd(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    const struct pst_rsyncd_settings settings = {.folder = pod->rsyncd_folder,
                                                 .host = pod->rsync_host[0] ? pod->rsync_host : NULL,
                                                 .port = (uint16_t)pod->settings->rsync_port,
                                                 .token = {pod->token, pod->token_bytes},
                                                 .log = pod->log,
                                                 .ctx = pod->log_ctx};
    char line[96];
    int r;

    if (pod->rsyncd)
        return 0;
    r = pst_rsyncd_open(&settings, &pod->rsyncd, fault);
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "agent: rsync on port %u", pst_rsyncd_port(pod->rsyncd));
    pod->log(pod->log_ctx, line);
    return 0;
}

/* Whether @path can be offered: absolute, without "..", and no link itself. */
static int path_check(const char *path, char fault[PST_FAULT_BYTES])
{
    struct stat st;
    int r = 0;

    if (path[0] != '/' || strstr(path, "/../") || strlen(path) >= PATH_MAX ||
        (strlen(path) >= 3 && strcmp(path + strlen(path) - 3, "/..") == 0) || path[strspn(path, "/.")] == 0)
        r = -EINVAL;
    else if (lstat(path, &st) < 0)
        r = -errno;
    else if (S_ISLNK(st.st_mode))
        r = -ELOOP;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "path %.150s: %s", path,
                 r == -EINVAL ? "must be absolute, without '..', and not the root" : strerror(-r));
    return r;
}

static struct offer *offer_new(const char *key, const char *path, bool named, pid_t pid)
{
    size_t key_bytes = strlen(key) + 1, path_bytes = strlen(path);
    struct offer *offer = calloc(1, sizeof(*offer) + key_bytes);
    uint64_t name[1];

    if (!offer)
        return NULL;
    while (path_bytes > 1 && path[path_bytes - 1] == '/')
        path_bytes--;
    offer->path = strndup(path, path_bytes);
    if (!offer->path) {
        free(offer);
        return NULL;
    }
    memcpy(offer->key, key, key_bytes);
    offer->named = named;
    offer->pid = pid;
    offer->pid_began = pid ? process_began(pid) : 0;
    offer->offered_ms = pst_wall_ns() / 1000000;
    pst_random(name, sizeof(name));
    snprintf(offer->module, sizeof(offer->module), "p-%016llx", (unsigned long long)name[0]);
    return offer;
}

/* Lets a new offer take the place of @old, if there is one. */
static int offers_put(struct pst_pod *pod, struct offer *offer, struct offer *old,
                      char fault[PST_FAULT_BYTES])
{
    int r = offers_start_rsyncd(pod, fault);

    if (r < 0)
        return r;
    r = pst_rsyncd_add(pod->rsyncd, offer->module, offer->path, offer->named ? PST_RSYNCD_NAMED : 0);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "path %.150s: %s", offer->path, strerror(-r));
        return r;
    }
    if (old)
        offer_withdraw(pod, old);
    pst_list_push_back(&pod->offers, &offer->link);
    pod->offer_count++;
    return 0;
}

static int offers_add_locked(struct pst_pod *pod, const char *key, const char *path, bool named, pid_t pid,
                             struct pod_place *place, char fault[PST_FAULT_BYTES])
{
    struct offer *old = offers_find(pod, key), *offer;
    int r;

    if (old && old->pid != pid && old->pid != 0 && offer_lives(old)) {
        snprintf(fault, PST_FAULT_BYTES, "key '%.100s' is process %d's", key, (int)old->pid);
        return -EEXIST;
    }
    if (!old && pod->offer_count == POD_OFFERS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "this pod offers %d paths already", POD_OFFERS_MAX);
        return -ENOSPC;
    }
    offer = offer_new(key, path, named, pid);
    if (!offer) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    /* The same path by the same owner keeps its module: who fetches from it goes on. */
    if (old && offer_lives(old) && old->pid == pid && old->named == named &&
        strcmp(old->path, offer->path) == 0) {
        free(offer->path);
        free(offer);
        offer_place(pod, old, place);
        return 0;
    }
    r = offers_put(pod, offer, old, fault);
    if (r < 0) {
        free(offer->path);
        free(offer);
        return r;
    }
    offer_place(pod, offer, place);
    return 0;
}

int offers_add(struct pst_pod *pod, const char *key, const char *path, bool named, pid_t pid,
               struct pod_place *place, char fault[PST_FAULT_BYTES])
{
    int r = path_check(path, fault);

    if (r == 0 && pid != 0 && process_began(pid) == 0) {
        snprintf(fault, PST_FAULT_BYTES, "there is no process %d", (int)pid);
        r = -ESRCH;
    }
    if (r < 0)
        return r;
    pthread_mutex_lock(&pod->offers_lock);
    r = offers_add_locked(pod, key, path, named, pid, place, fault);
    pthread_mutex_unlock(&pod->offers_lock);
    return r;
}

int offers_remove(struct pst_pod *pod, const char *key, pid_t pid)
{
    struct offer *offer;
    int r = 0;

    pthread_mutex_lock(&pod->offers_lock);
    offer = offers_find(pod, key);
    if (offer && pid != 0 && offer->pid != 0 && offer->pid != pid)
        r = -EPERM;
    else if (offer) {
        offer_withdraw(pod, offer);
        r = 1;
    }
    pthread_mutex_unlock(&pod->offers_lock);
    return r;
}

static int offer_describe(const struct pst_pod *pod, const struct offer *offer, struct pst_json *into)
{
    struct pst_json *one = pst_json_new_object();
    struct pod_place place;

    offer_place(pod, offer, &place);
    if (!one || pst_json_add_text(one, "key", offer->key) < 0 ||
        pst_json_add_text(one, "path", offer->path) < 0 || pst_json_add_integer(one, "pid", offer->pid) < 0 ||
        pst_json_add_number(one, "registered_at", (double)offer->offered_ms / 1e3) < 0 ||
        pst_json_add_text(one, "rsync_path", place.rsync_path) < 0) {
        pst_json_free(one);
        return -ENOMEM;
    }
    return pst_json_add(into, NULL, one);
}

struct pst_json *offers_list(struct pst_pod *pod)
{
    struct pst_json *list = pst_json_new_array();

    if (!list)
        return NULL;
    pthread_mutex_lock(&pod->offers_lock);
    pst_list_each (it, &pod->offers) {
        /* A path whose name is no UTF-8 is offered, but JSON cannot say it. */
        offer_describe(pod, pst_list_entry(it, struct offer, link), list);
    }
    pthread_mutex_unlock(&pod->offers_lock);
    return list;
}

void offers_sweep(struct pst_pod *pod)
{
    char line[PST_FAULT_BYTES + 64];

    pthread_mutex_lock(&pod->offers_lock);
    pst_list_each_safe (it, &pod->offers) {
        struct offer *offer = pst_list_entry(it, struct offer, link);

        if (offer_lives(offer))
            continue;
        snprintf(line, sizeof(line), "agent: key '%.200s' goes with process %d", offer->key, (int)offer->pid);
        pst_printable(line);
        offer_withdraw(pod, offer);
        pod->log(pod->log_ctx, line);
    }
    pthread_mutex_unlock(&pod->offers_lock);
}

void offers_close(struct pst_pod *pod)
{
    pst_list_each_safe (it, &pod->offers) {
        struct offer *offer = pst_list_entry(it, struct offer, link);

        pst_list_remove(&offer->link);
        free(offer->path);
        free(offer);
    }
    pod->offer_count = 0;
    pod->rsyncd = pst_rsyncd_close(pod->rsyncd);
    if (pod->rsyncd_folder[0])
        rmdir(pod->rsyncd_folder);
}
