/* SPDX-License-Identifier: Apache-2.0 */
/* casts.c: the source's side. What may be received is a group and a key; its memory is looked up when the
 * first member of the group joins, and then belongs to the broadcast, whatever becomes of its owner. */
#include "agent/pod/casts_priv.h"
#include "agent/pod/frame_priv.h"

#include "base/clock.h"
#include "files/relay/broadcasts.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct cast {
    struct pst_list link;
    char group[PST_TREE_GROUP_BYTES_MAX + 1]; /* "": any */
    char key[PST_KEY_CAP];
};

struct pod_casts {
    pthread_mutex_t lock;
    struct pst_list list;
    uint32_t count;
    struct pst_broadcasts *rows;     /* NULL: nothing was served yet */
    struct pst_carry_server *server; /* of them */
};

void cast_memory_name(uint32_t number, char name[POD_MEMORY_NAME_BYTES])
{
    pst_assert(number < POD_FDS_MAX);
    snprintf(name, POD_MEMORY_NAME_BYTES, "%04u", number);
}

_Static_assert((int)POD_FDS_MAX <= 9999, "names of memories sort as their numbers");

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

static bool casts_allow(struct pod_casts *casts, const char *group, const char *key)
{
    bool allowed;

    pthread_mutex_lock(&casts->lock);
    allowed = casts_find(casts, group, key) || casts_find(casts, "", key);
    pthread_mutex_unlock(&casts->lock);
    return allowed;
}

static int refuse_device(const struct pod_tensor *tensor, char *fault)
{
    snprintf(fault, PST_FAULT_BYTES,
             "tensor '%.100s' lies on the device %s; only the host's memory is broadcast", tensor->key,
             tensor->device);
    return -EXDEV;
}

/* ---- a broadcast's files ---- */

/* Tensors on their way to other pods. */
struct gathering {
    struct shown shown;
    struct pod_fds memories;
    char *fault;
};

static int gather_one(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct gathering *gathering = ctx;
    int r;

    pst_assert(tensor->memory);
    pst_assert(gathering->shown.go == &gathering->memories);
    if (fd < 0)
        return refuse_device(tensor, gathering->fault);
    r = shown_add(&gathering->shown, tensor, fd, memory);
    if (r == -E2BIG)
        snprintf(gathering->fault, PST_FAULT_BYTES, "the tensors lie in more than %d memories", POD_FDS_MAX);
    return r;
}

/* Return: a file with @text, or -errno. */
static int table_file(const char *text)
{
    size_t bytes = strlen(text), done = 0;
    int fd = bytes <= POD_TABLE_BYTES_MAX ? memfd_create("penstock-table", MFD_CLOEXEC) : -1;

    if (bytes > POD_TABLE_BYTES_MAX)
        return -E2BIG;
    while (fd >= 0 && done < bytes) {
        ssize_t n = write(fd, text + done, bytes - done);

        if (n < 0) {
            int r = -errno;

            close(fd);
            return r;
        }
        done += (size_t)n;
    }
    return fd < 0 ? -errno : fd;
}

/* Adds a file to the manifest; the descriptor becomes the broadcast's. */
static int files_add(struct pst_broadcast_files *files, const char *name, int fd)
{
    struct pst_entry entry = {.kind = PST_ENTRY_FILE, .mode = 0600, .path = name, .target = ""};
    struct stat st;
    int r = fstat(fd, &st) < 0 ? -errno : 0;

    pst_assert(files->fds);
    pst_assert(files->m.count > 0); /* its folder is */
    entry.bytes = r == 0 ? (uint64_t)st.st_size : 0;
    entry.modified_ns = r == 0 ? pst_modified_ns(&st) : 0;
    if (r == 0)
        r = pst_manifest_add(&files->m, &entry);
    if (r == 0)
        files->fds[files->m.count - 1] = fd;
    else
        close(fd);
    return r;
}

static int files_fill(struct pst_broadcast_files *files, struct pod_fds *memories, const char *table)
{
    const struct pst_entry folder = {.kind = PST_ENTRY_FOLDER, .mode = 0700, .path = "", .target = ""};
    char name[POD_MEMORY_NAME_BYTES];
    int fd, r;

    pst_assert(!files->fds);
    pst_assert(memories->count <= POD_FDS_MAX);
    files->fds = malloc((memories->count + 2) * sizeof(*files->fds));
    r = files->fds ? pst_manifest_add(&files->m, &folder) : -ENOMEM;
    if (r == 0)
        files->fds[0] = -1;
    for (uint32_t i = 0; r == 0 && i < memories->count; i++) {
        cast_memory_name(i, name);
        fd = memories->fds[i];
        memories->fds[i] = -1;
        r = files_add(files, name, fd);
    }
    if (r < 0)
        return r;
    fd = table_file(table);
    return fd < 0 ? fd : files_add(files, POD_TABLE_NAME, fd);
}

static int gather(void *ctx, const char *group, const char *name, struct pst_broadcast_files *out,
                  char fault[PST_FAULT_BYTES])
{
    struct pst_pod *pod = ctx;
    struct gathering gathering = {.fault = fault};
    pst_cleanup_free char *table = NULL;
    int r;

    if (!casts_allow(pod->casts, group, name)) {
        snprintf(fault, PST_FAULT_BYTES, "Key not found: %.150s is served to no such group", name);
        return -ENOENT;
    }
    gathering.shown.go = &gathering.memories;
    gathering.shown.tensors = pst_json_new_array();
    r = gathering.shown.tensors ? tensors_find_below(pod, name, gather_one, &gathering, fault) : -ENOMEM;
    table = r == 0 ? pst_json_print(gathering.shown.tensors) : NULL;
    pst_json_free(gathering.shown.tensors);
    if (r == 0)
        r = table ? files_fill(out, &gathering.memories, table) : -ENOMEM;
    if (r < 0 && !fault[0])
        snprintf(fault, PST_FAULT_BYTES, "tensors of '%.100s': %s", name, strerror(-r));
    for (uint32_t i = 0; i < gathering.memories.count; i++)
        pst_close_fd(&gathering.memories.fds[i]);
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

static int check_one(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    char *fault = ctx;

    (void)memory;
    pst_assert(tensor->memory);
    return fd >= 0 ? 0 : refuse_device(tensor, fault);
}

static int casts_add(struct pod_casts *casts, const char *group, const char *key, char fault[PST_FAULT_BYTES])
{
    struct cast *cast;

    pst_assert(*key);
    if (casts_find(casts, group, key))
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
    return 0;
}

int casts_serve(struct pst_pod *pod, const char *group, const char *key, uint16_t *port,
                char fault[PST_FAULT_BYTES])
{
    struct pod_casts *casts = pod->casts;
    int r = tensors_find_below(pod, key, check_one, fault, fault);

    pst_assert(strlen(group) <= PST_TREE_GROUP_BYTES_MAX);
    if (r < 0)
        return r;
    pthread_mutex_lock(&casts->lock);
    r = port_open(pod, fault);
    if (r == 0)
        r = casts_add(casts, group, key, fault);
    if (r == 0)
        *port = pst_carry_server_port(casts->server);
    pthread_mutex_unlock(&casts->lock);
    return r;
}

/* One of them is enough. */
static int see_one(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    (void)ctx, (void)fd, (void)memory;
    pst_assert(tensor->memory);
    return -EALREADY;
}

void casts_sweep(struct pst_pod *pod)
{
    struct pod_casts *casts = pod->casts;
    char ignored[PST_FAULT_BYTES];

    pthread_mutex_lock(&casts->lock);
    pst_list_each_safe (it, &casts->list) {
        struct cast *cast = pst_list_entry(it, struct cast, link);

        if (tensors_find_below(pod, cast->key, see_one, NULL, ignored) != -EALREADY)
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
