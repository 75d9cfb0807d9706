/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offers.c: paths that this pod serves. Each offer has a module of the rsync daemon for itself, with a name
 * that nobody can guess, read-only. An offer ends with its owner.
 */
#include "agent/pod/pod_priv.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

/* A path that is to be offered. */
struct wanted {
    const char *key;
    struct owner owner;
    bool named, is_folder;
    char path[PATH_MAX], real[PATH_MAX]; /* as it was said, and where that leads */
};

struct offer {
    struct pst_list link;
    struct owner owner;
    uint64_t offered_ms; /* since 1970 */
    bool named;          /* the module has the path under its name */
    bool is_folder, has_twin;
    char module[POD_MODULE_BYTES];
    char *path, *real;
    char key[];
};

static void offer_free(struct offer *offer)
{
    free(offer->path);
    free(offer->real);
    free(offer);
}

/* Under the lock, as all below. */
static struct offer *offers_find(struct pst_pod *pod, const char *key)
{
    pst_assert(pod->offer_count <= POD_OFFERS_MAX);
    pst_list_each (it, &pod->offers) {
        struct offer *offer = pst_list_entry(it, struct offer, link);

        if (strcmp(offer->key, key) == 0)
            return offer;
    }
    return NULL;
}

/* The module that has a folder in the other way: with its name, or what is in it. */
static void offer_twin(const struct offer *offer, char twin[POD_MODULE_BYTES])
{
    pst_assert(offer->module[0] == 'p');
    memcpy(twin, offer->module, POD_MODULE_BYTES);
    twin[0] = 'd';
}

static void offer_withdraw(struct pst_pod *pod, struct offer *offer)
{
    char twin[POD_MODULE_BYTES];

    pst_assert(pod->offer_count > 0);
    pst_assert(!pst_list_empty(&offer->link));
    /* If not even a link can be removed, the module stays until the agent ends; its name is forgotten. */
    if (pod->rsyncd)
        pst_rsyncd_remove(pod->rsyncd, offer->module);
    offer_twin(offer, twin);
    if (pod->rsyncd && offer->has_twin)
        pst_rsyncd_remove(pod->rsyncd, twin);
    pst_list_remove(&offer->link);
    pod->offer_count--;
    offer_free(offer);
}

static void offer_place(const struct pst_pod *pod, const struct offer *offer, struct pod_place *place)
{
    struct stat st;
    bool is_file = stat(offer->real, &st) == 0 && S_ISREG(st.st_mode);

    pst_assert(pod->rsyncd);
    pst_assert(offer->module[0]);
    pst_assert(offer->real[0] == '/');
    place->rsync_port = pst_rsyncd_port(pod->rsyncd);
    pst_assert(place->rsync_port > 0);
    snprintf(place->rsync_path, sizeof(place->rsync_path), "%s%s%.*s", offer->module, is_file ? "/" : "",
             is_file ? NAME_MAX : 0, strrchr(offer->real, '/') + 1);
}

/* Without it rsync tells clients of kubetorch that there is no such module, instead of no such path. */
static void offers_add_nothing(struct pst_pod *pod)
{
    char path[PATH_MAX + sizeof(POD_NOTHING)];

    snprintf(path, sizeof(path), "%s/" POD_NOTHING, pod->rsyncd_folder);
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        pst_rsyncd_add(pod->rsyncd, POD_NOTHING, path, 0);
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
    pst_assert(pod->rsyncd);
    if (pod->serves_data)
        offers_add_nothing(pod);
    snprintf(line, sizeof(line), "agent: rsync on port %u", pst_rsyncd_port(pod->rsyncd));
    pod->log(pod->log_ctx, line);
    return 0;
}

/* Copies @path without what the last name has behind it: "/" and "/.", which would lead through a link. */
static int path_trim(const char *path, char trimmed[PATH_MAX])
{
    size_t bytes = strlen(path);

    while (bytes > 0 &&
           (path[bytes - 1] == '/' || (bytes > 1 && path[bytes - 1] == '.' && path[bytes - 2] == '/')))
        bytes--;
    if (path[0] != '/' || bytes == 0 || bytes >= PATH_MAX || strstr(path, "/../") ||
        (bytes >= 3 && memcmp(path + bytes - 3, "/..", 3) == 0))
        return -EINVAL;
    memcpy(trimmed, path, bytes);
    trimmed[bytes] = 0;
    return 0;
}

/* Whether @path is @folder, or beneath it. */
static bool path_within(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);

    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '/' || !path[bytes]);
}

/* What would tell peers the daemon's password and the names of all modules, or what the kernel makes up. */
static bool path_is_kept(const struct pst_pod *pod, const char *real)
{
    return path_within(pod->rsyncd_folder, real) || path_within(real, pod->rsyncd_folder) ||
           path_within(real, "/proc") || path_within(real, "/sys");
}

/* Whether @path can be offered: absolute, without "..", and no link itself. */
static int path_check(const struct pst_pod *pod, const char *path, struct wanted *wanted,
                      char fault[PST_FAULT_BYTES])
{
    struct stat st;
    int r = path_trim(path, wanted->path);

    if (r == 0 && lstat(wanted->path, &st) < 0)
        r = -errno;
    else if (r == 0 && S_ISLNK(st.st_mode))
        r = -ELOOP;
    else if (r == 0 && !realpath(wanted->path, wanted->real))
        r = -errno;
    else if (r == 0 && (strcmp(wanted->real, "/") == 0 || path_is_kept(pod, wanted->real)))
        r = -EACCES;
    wanted->is_folder = r == 0 && S_ISDIR(st.st_mode);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "path %.150s: %s", path,
                 r == -EINVAL   ? "must be absolute, without '..', and not the root"
                 : r == -EACCES ? "what the agent or the kernel keeps for itself cannot be offered"
                                : strerror(-r));
    pst_assert(r < 0 || wanted->real[0] == '/');
    return r;
}

static struct offer *offer_new(const struct wanted *wanted)
{
    size_t key_bytes = strlen(wanted->key) + 1;
    struct offer *offer = calloc(1, sizeof(*offer) + key_bytes);
    uint64_t name[1];

    pst_assert(wanted->path[0] == '/');
    pst_assert(wanted->real[0] == '/');
    if (!offer)
        return NULL;
    offer->path = strdup(wanted->path);
    offer->real = strdup(wanted->real);
    if (!offer->path || !offer->real) {
        offer_free(offer);
        return NULL;
    }
    memcpy(offer->key, wanted->key, key_bytes);
    offer->named = wanted->named;
    offer->is_folder = wanted->is_folder;
    offer->owner = wanted->owner;
    offer->offered_ms = pst_wall_ns() / 1000000;
    pst_random(name, sizeof(name));
    snprintf(offer->module, sizeof(offer->module), "p-%016llx", (unsigned long long)name[0]);
    return offer;
}

/* For clients of kubetorch, if any are served. Without it they find what lies in a folder, or all of it. */
static void offer_add_twin(struct pst_pod *pod, struct offer *offer)
{
    char twin[POD_MODULE_BYTES];

    pst_assert(pod->rsyncd);
    pst_assert(!offer->has_twin);
    offer_twin(offer, twin);
    offer->has_twin =
        pod->serves_data && offer->is_folder &&
        pst_rsyncd_add(pod->rsyncd, twin, offer->real, offer->named ? 0 : PST_RSYNCD_NAMED) == 0;
}

/* Lets a new offer take the place of @old, if there is one. */
static int offers_put(struct pst_pod *pod, struct offer *offer, struct offer *old,
                      char fault[PST_FAULT_BYTES])
{
    int r = offers_start_rsyncd(pod, fault);

    if (r < 0)
        return r;
    r = pst_rsyncd_add(pod->rsyncd, offer->module, offer->real, offer->named ? PST_RSYNCD_NAMED : 0);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "path %.150s: %s", offer->path, strerror(-r));
        return r;
    }
    offer_add_twin(pod, offer);
    if (old)
        offer_withdraw(pod, old);
    pst_assert(pod->offer_count < POD_OFFERS_MAX);
    pst_assert(!offers_find(pod, offer->key));
    pst_list_push_back(&pod->offers, &offer->link);
    pod->offer_count++;
    pst_assert(pod->offer_count <= POD_OFFERS_MAX);
    return 0;
}

static int offers_add_locked(struct pst_pod *pod, const struct wanted *wanted, struct pod_place *place,
                             char fault[PST_FAULT_BYTES])
{
    struct offer *old = offers_find(pod, wanted->key), *offer;
    bool same_owner = old && owner_is(&old->owner, &wanted->owner);
    int r;

    if (old && !same_owner && old->owner.pid != 0 && owner_lives(&old->owner)) {
        snprintf(fault, PST_FAULT_BYTES, "key '%.100s' is process %d's", wanted->key, (int)old->owner.pid);
        return -EEXIST;
    }
    /* The same path by the same owner keeps its module, which has the rules of a file or of a folder: who
     * fetches from it goes on. */
    if (same_owner && old->named == wanted->named && old->is_folder == wanted->is_folder &&
        strcmp(old->path, wanted->path) == 0 && strcmp(old->real, wanted->real) == 0) {
        offer_place(pod, old, place);
        return 0;
    }
    if (!old && pod->offer_count == POD_OFFERS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "this pod offers %d paths already", POD_OFFERS_MAX);
        return -ENOSPC;
    }
    pst_assert(old || pod->offer_count < POD_OFFERS_MAX);
    offer = offer_new(wanted);
    if (!offer) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    r = offers_put(pod, offer, old, fault);
    if (r < 0) {
        offer_free(offer);
        return r;
    }
    offer_place(pod, offer, place);
    return 0;
}

int offers_add(struct pst_pod *pod, const char *key, const char *path, bool named, pid_t pid,
               struct pod_place *place, char fault[PST_FAULT_BYTES])
{
    struct wanted wanted = {.key = key, .named = named};
    int r = path_check(pod, path, &wanted, fault);

    if (r == 0)
        r = owner_of(pid, &wanted.owner, fault);
    if (r < 0)
        return r;
    pthread_mutex_lock(&pod->offers_lock);
    r = offers_add_locked(pod, &wanted, place, fault);
    pthread_mutex_unlock(&pod->offers_lock);
    return r;
}

int offers_remove(struct pst_pod *pod, const char *key, pid_t pid)
{
    struct offer *offer;
    int r = 0;

    pst_assert(pid >= 0);
    pthread_mutex_lock(&pod->offers_lock);
    offer = offers_find(pod, key);
    if (offer && pid != 0 && offer->owner.pid != 0 && offer->owner.pid != pid)
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
        pst_json_add_text(one, "path", offer->path) < 0 ||
        pst_json_add_integer(one, "pid", offer->owner.pid) < 0 ||
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

        if (owner_lives(&offer->owner))
            continue;
        snprintf(line, sizeof(line), "agent: key '%.200s' goes with process %d", offer->key,
                 (int)offer->owner.pid);
        pst_printable(line);
        offer_withdraw(pod, offer);
        pod->log(pod->log_ctx, line);
    }
    pthread_mutex_unlock(&pod->offers_lock);
}

int offers_rsync_port(struct pst_pod *pod)
{
    char fault[PST_FAULT_BYTES] = "", line[PST_FAULT_BYTES + 16];
    int r;

    pthread_mutex_lock(&pod->offers_lock);
    r = offers_start_rsyncd(pod, fault);
    if (r == 0)
        r = pst_rsyncd_port(pod->rsyncd);
    pst_assert(r < 0 || pod->rsyncd);
    pthread_mutex_unlock(&pod->offers_lock);
    if (r < 0) {
        snprintf(line, sizeof(line), "agent: rsync: %s", fault);
        pod->log(pod->log_ctx, line);
    }
    return r;
}

/* Return: what of @path is behind @folder, "" nothing; NULL it lies elsewhere. @path: without its first '/'.
 */
static const char *path_behind(const char *folder, const char *path)
{
    size_t bytes = strlen(folder + 1);

    pst_assert(folder[0] == '/');
    return strncmp(path, folder + 1, bytes) == 0 && (path[bytes] == '/' || !path[bytes]) ? path + bytes
                                                                                         : NULL;
}

/* Return: whether the offer has it. */
static bool offer_place_of(const struct offer *offer, const char *path, char *place)
{
    const char *behind = path_behind(offer->path, path);
    char twin[POD_MODULE_BYTES];
    bool whole;

    if (!behind)
        behind = path_behind(offer->real, path);
    if (!behind || (*behind && !offer->is_folder))
        return false;
    whole = !*behind;
    offer_twin(offer, twin);
    pst_assert(offer->real[0] == '/');
    snprintf(place, PST_RSYNC_FRONT_PLACE_BYTES, "%s%s%s",
             offer->is_folder && whole != offer->named && offer->has_twin ? twin : offer->module,
             whole ? strrchr(offer->real, '/') : "", behind);
    return true;
}

void offers_place_of(struct pst_pod *pod, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES])
{
    bool found = false;

    pthread_mutex_lock(&pod->offers_lock);
    for (struct pst_list *it = pod->offers.next; it != &pod->offers && !found; it = it->next)
        found = offer_place_of(pst_list_entry(it, struct offer, link), path, place);
    pthread_mutex_unlock(&pod->offers_lock);
    if (!found)
        snprintf(place, PST_RSYNC_FRONT_PLACE_BYTES, POD_NOTHING "/%s", path);
}

void offers_close(struct pst_pod *pod)
{
    char nothing[PATH_MAX + sizeof(POD_NOTHING)];

    pst_assert(!pod->acceptor);
    pst_assert(!pod->front);
    pst_list_each_safe (it, &pod->offers) {
        struct offer *offer = pst_list_entry(it, struct offer, link);

        pst_list_remove(&offer->link);
        offer_free(offer);
    }
    pst_assert(pst_list_empty(&pod->offers));
    pod->offer_count = 0;
    pod->rsyncd = pst_rsyncd_close(pod->rsyncd);
    snprintf(nothing, sizeof(nothing), "%s/" POD_NOTHING, pod->rsyncd_folder);
    if (pod->rsyncd_folder[0])
        rmdir(nothing);
    if (pod->rsyncd_folder[0])
        rmdir(pod->rsyncd_folder);
}
