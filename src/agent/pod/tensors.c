/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c: the table of tensors, and the memories in which they lie. A memory is one file, or one of CUDA's
 * handles, however many tensors lie in it; its descriptor is closed with the last of them.
 */
#include "agent/pod/tensors_priv.h"

#include "base/clock.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

struct pod_memory {
    struct pst_list link;
    uint64_t number;
    uint32_t tensors;
    int fd;     /* -1: CUDA's */
    int access; /* O_RDONLY, O_RDWR: one file is two memories if its owner lets others write to it by one */
    dev_t device;
    ino_t inode;
    uint8_t cuda[PST_GPU_CUDA_HANDLE_BYTES];
};

struct pod_tensors {
    pthread_mutex_t lock;
    struct pod_tensor **all; /* in the order of keys */
    uint32_t count;
    struct pst_list memories;
    uint32_t memory_count;
    uint64_t memories_made;
};

/* Some of the table that follow each other. */
struct range {
    uint32_t begin, end;
};

int tensors_open(struct pst_pod *pod)
{
    struct pod_tensors *tensors = calloc(1, sizeof(*tensors));

    pst_assert(!pod->tensors);
    if (!tensors)
        return -ENOMEM;
    pthread_mutex_init(&tensors->lock, NULL);
    pst_list_init(&tensors->memories);
    pod->tensors = tensors;
    return 0;
}

/* ---- memories, under the lock as all below ---- */

static int access_of(int fd)
{
    pst_assert(fd >= 0);
    return fcntl(fd, F_GETFL) & O_ACCMODE;
}

static bool memory_is(const struct pod_memory *memory, const struct pst_gpu_handle *handle, int fd,
                      const struct stat *st)
{
    pst_assert(memory->tensors > 0);
    if (handle->kind == PST_GPU_CUDA)
        return memory->fd < 0 && memcmp(memory->cuda, handle->cuda, sizeof(memory->cuda)) == 0;
    return memory->fd >= 0 && memory->device == st->st_dev && memory->inode == st->st_ino &&
           memory->access == access_of(fd);
}

static struct pod_memory *memory_find(struct pod_tensors *tensors, const struct pst_gpu_handle *handle,
                                      int fd, const struct stat *st)
{
    pst_assert(tensors->memory_count <= POD_MEMORIES_MAX);
    pst_list_each (it, &tensors->memories) {
        struct pod_memory *memory = pst_list_entry(it, struct pod_memory, link);

        if (memory_is(memory, handle, fd, st))
            return memory;
    }
    return NULL;
}

static void memory_unref(struct pod_tensors *tensors, struct pod_memory *memory)
{
    pst_assert(memory->tensors > 0 && tensors->memory_count > 0);
    if (--memory->tensors > 0)
        return;
    pst_list_remove(&memory->link);
    tensors->memory_count--;
    pst_close_fd(&memory->fd);
    free(memory);
}

/* @fd: -1 of CUDA's. */
static int memory_new(struct pod_tensors *tensors, const struct pst_gpu_handle *handle, const struct stat *st,
                      int fd, struct pod_memory **out)
{
    struct pod_memory *memory;

    pst_assert(tensors->memory_count <= POD_MEMORIES_MAX);
    pst_assert((fd < 0) == (handle->kind == PST_GPU_CUDA));
    if (tensors->memory_count == POD_MEMORIES_MAX)
        return -ENOSPC;
    memory = calloc(1, sizeof(*memory));
    if (!memory)
        return -ENOMEM;
    memory->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && memory->fd < 0) {
        free(memory);
        return -EMFILE;
    }
    memory->access = fd < 0 ? 0 : access_of(fd);
    memory->device = st->st_dev;
    memory->inode = st->st_ino;
    memcpy(memory->cuda, handle->cuda, sizeof(memory->cuda));
    memory->number = tensors->memories_made++;
    pst_list_push_back(&tensors->memories, &memory->link);
    tensors->memory_count++;
    *out = memory;
    return 0;
}

/* Gives @tensor its memory, the one of @last if that is the same descriptor's. */
static int memory_attach(struct pod_tensors *tensors, struct pod_tensor *tensor,
                         const struct pod_tensor *last, const struct pod_fds *came)
{
    const struct pst_gpu_handle *handle = &tensor->handle;
    bool is_host = handle->kind == PST_GPU_HOST;
    struct pod_memory *memory;
    struct stat st = {0};
    int fd = -1, r = 0;

    pst_assert(!tensor->memory);
    if (is_host && handle->descriptor >= came->count)
        return -EBADF;
    if (is_host) {
        fd = came->fds[handle->descriptor];
        r = fstat(fd, &st) < 0 ? -errno : 0;
    }
    if (r < 0)
        return r;
    if (last && last->memory && memory_is(last->memory, handle, fd, &st))
        memory = last->memory;
    else
        memory = memory_find(tensors, handle, fd, &st);
    if (!memory)
        r = memory_new(tensors, handle, &st, fd, &memory);
    if (r < 0)
        return r;
    memory->tensors++;
    tensor->memory = memory;
    return 0;
}

static void memory_detach(struct pod_tensors *tensors, struct pod_tensor *tensor)
{
    if (tensor->memory)
        memory_unref(tensors, tensor->memory);
    tensor->memory = NULL;
}

/* ---- the table ---- */

static void tensor_free(struct pod_tensors *tensors, struct pod_tensor *tensor)
{
    memory_detach(tensors, tensor);
    free(tensor);
}

/* The first whose key is not smaller than @key. */
static uint32_t tensors_at(const struct pod_tensors *tensors, const char *key)
{
    uint32_t low = 0, high = tensors->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (strcmp(tensors->all[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    pst_assert(low == high && low <= tensors->count);
    return low;
}

/* Those below a key: no other key begins with "KEY/", and '0' is the byte behind '/'. */
static struct range tensors_below(const struct pod_tensors *tensors, const char *key)
{
    char edge[PST_KEY_CAP + 1];
    size_t bytes = strlen(key);
    struct range range;

    pst_assert(bytes < PST_KEY_CAP);
    memcpy(edge, key, bytes);
    memcpy(edge + bytes, "/", 2);
    range.begin = tensors_at(tensors, edge);
    edge[bytes] = '0';
    range.end = tensors_at(tensors, edge);
    return range;
}

static struct pod_tensor *tensors_get(const struct pod_tensors *tensors, const char *key)
{
    uint32_t at = tensors_at(tensors, key);

    pst_assert(*key);
    return at < tensors->count && strcmp(tensors->all[at]->key, key) == 0 ? tensors->all[at] : NULL;
}

/* Withdraws those that @go names. Return: how many. */
static uint32_t tensors_drop(struct pod_tensors *tensors, bool (*go)(const struct pod_tensor *, void *),
                             void *ctx, struct range range)
{
    uint32_t kept = range.begin, dropped;

    pst_assert(range.begin <= range.end && range.end <= tensors->count);
    for (uint32_t i = range.begin; i < range.end; i++) {
        if (go(tensors->all[i], ctx))
            tensor_free(tensors, tensors->all[i]);
        else
            tensors->all[kept++] = tensors->all[i];
    }
    dropped = range.end - kept;
    if (dropped == 0) /* as of no tensors, for which there is no memory yet */
        return 0;
    memmove(tensors->all + kept, tensors->all + range.end,
            (tensors->count - range.end) * sizeof(tensors->all[0]));
    tensors->count -= dropped;
    return dropped;
}

/* Whether an owner lives, who is often the one that was asked about before. */
struct liveness {
    struct owner owner;
    bool lives;
};

static bool liveness_of(struct liveness *known, const struct pod_tensor *tensor)
{
    if (!tensor->memory)
        return false;
    if (!known->lives || !owner_is(&known->owner, &tensor->owner))
        *known = (struct liveness){.owner = tensor->owner, .lives = owner_lives(&tensor->owner)};
    return known->lives;
}

/* ---- putting ---- */

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(struct pod_tensor *const *)a)->key, (*(struct pod_tensor *const *)b)->key);
}

static int batch_sort(struct pod_batch *batch, char fault[PST_FAULT_BYTES])
{
    qsort(batch->tensors, batch->count, sizeof(batch->tensors[0]), compare_tensors);
    for (uint32_t i = 1; i < batch->count; i++) {
        if (strcmp(batch->tensors[i - 1]->key, batch->tensors[i]->key) != 0)
            continue;
        snprintf(fault, PST_FAULT_BYTES, "key '%.150s' comes twice", batch->tensors[i]->key);
        return -EINVAL;
    }
    return 0;
}

static int check_replaced(struct liveness *known, const struct pod_tensor *old, const struct owner *owner,
                          char fault[PST_FAULT_BYTES])
{
    pst_assert(*old->key);
    if (owner_is(&old->owner, owner) || !liveness_of(known, old))
        return 0;
    snprintf(fault, PST_FAULT_BYTES, "key '%.150s' is process %d's", old->key, (int)old->owner.pid);
    return -EEXIST;
}

/* Whether all of @batch may take the place of what is there. @replaced: how many that is. */
static int batch_check(struct pod_tensors *tensors, const struct pod_batch *batch, uint32_t *replaced,
                       char fault[PST_FAULT_BYTES])
{
    const struct owner *owner = &batch->tensors[0]->owner;
    struct liveness known = {.lives = false};
    struct range below = {0};
    struct pod_tensor *itself = batch->below ? tensors_get(tensors, batch->below) : NULL;
    int r = 0;

    pst_assert(batch->count > 0);
    if (batch->below)
        below = tensors_below(tensors, batch->below);
    *replaced = below.end - below.begin + (itself ? 1 : 0);
    if (itself)
        r = check_replaced(&known, itself, owner, fault);
    for (uint32_t i = below.begin; r == 0 && i < below.end; i++)
        r = check_replaced(&known, tensors->all[i], owner, fault);
    for (uint32_t i = 0; r == 0 && !batch->below && i < batch->count; i++) {
        struct pod_tensor *old = tensors_get(tensors, batch->tensors[i]->key);

        if (!old)
            continue;
        (*replaced)++;
        r = check_replaced(&known, old, owner, fault);
    }
    pst_assert(*replaced <= tensors->count);
    return r;
}

static bool tensor_has_gone(const struct pod_tensor *tensor, void *ctx)
{
    (void)ctx;
    return !tensor->memory;
}

static bool tensor_is_any(const struct pod_tensor *tensor, void *ctx)
{
    (void)ctx;
    return tensor != NULL;
}

/* Both are in order. A tensor of the batch takes the place of one with its key. */
static uint32_t batch_merge(struct pod_tensors *tensors, struct pod_batch *batch, struct pod_tensor **into)
{
    uint32_t old = 0, new = 0, count = 0;

    while (old < tensors->count || new < batch->count) {
        int order = old == tensors->count ? 1
                    : new == batch->count ? -1
                                          : strcmp(tensors->all[old]->key, batch->tensors[new]->key);

        if (order < 0) {
            into[count++] = tensors->all[old++];
            continue;
        }
        if (order == 0)
            tensor_free(tensors, tensors->all[old++]);
        into[count++] = batch->tensors[new ++];
    }
    pst_assert(count >= batch->count);
    return count;
}

static const char *attach_fault(int error)
{
    pst_assert(error < 0);
    return error == -EBADF    ? "its descriptor did not come with the frame"
           : error == -ENOSPC ? "this agent keeps no more memories"
                              : strerror(-error);
}

/* Nothing of the table is changed if it fails. */
static int batch_attach(struct pod_tensors *tensors, struct pod_batch *batch, const struct pod_fds *came,
                        char fault[PST_FAULT_BYTES])
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < batch->count; i++) {
        r = memory_attach(tensors, batch->tensors[i], i > 0 ? batch->tensors[i - 1] : NULL, came);
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "tensor '%.100s': %.100s", batch->tensors[i]->key,
                     attach_fault(r));
    }
    for (uint32_t i = 0; r < 0 && i < batch->count; i++)
        memory_detach(tensors, batch->tensors[i]);
    return r;
}

/* The tensor of a key, and with @all those below it. Return: how many. */
static uint32_t tensors_clear(struct pod_tensors *tensors, const char *key, bool all)
{
    uint32_t dropped = all ? tensors_drop(tensors, tensor_is_any, NULL, tensors_below(tensors, key)) : 0;
    uint32_t at = tensors_at(tensors, key);

    return dropped + tensors_drop(tensors, tensor_is_any, NULL,
                                  (struct range){at, at + (tensors_get(tensors, key) ? 1 : 0)});
}

static int tensors_put_locked(struct pod_tensors *tensors, struct pod_batch *batch,
                              const struct pod_fds *came, char fault[PST_FAULT_BYTES])
{
    struct pod_tensor **into;
    uint32_t replaced;
    int r;

    pst_assert(batch->count > 0);
    if (tensors->count + batch->count > POD_TENSORS_MAX)
        tensors_drop(tensors, tensor_has_gone, NULL, (struct range){0, tensors->count});
    r = batch_check(tensors, batch, &replaced, fault);
    if (r == 0 && tensors->count - replaced + batch->count > POD_TENSORS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "this agent knows no more than %d tensors", POD_TENSORS_MAX);
        r = -ENOSPC;
    }
    into = r == 0 ? malloc((tensors->count + batch->count) * sizeof(into[0])) : NULL;
    if (r == 0)
        r = into ? batch_attach(tensors, batch, came, fault) : -ENOMEM;
    if (r < 0) {
        free(into);
        return r;
    }
    for (uint32_t i = 0; batch->below && i < batch->count; i++)
        batch->tensors[i]->below_bytes = (uint32_t)strlen(batch->below);
    if (batch->below)
        tensors_clear(tensors, batch->below, true);
    tensors->count = batch_merge(tensors, batch, into);
    batch->count = 0;
    free(tensors->all);
    tensors->all = into;
    pst_assert(tensors->count <= POD_TENSORS_MAX);
    return 0;
}

int tensors_put(struct pst_pod *pod, struct pod_batch *batch, const struct pod_fds *came,
                char fault[PST_FAULT_BYTES])
{
    int r = batch_sort(batch, fault);

    pst_assert(batch->count > 0);
    if (r < 0)
        return r;
    pthread_mutex_lock(&pod->tensors->lock);
    r = tensors_put_locked(pod->tensors, batch, came, fault);
    pthread_mutex_unlock(&pod->tensors->lock);
    return r;
}

void tensors_free(struct pod_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        pst_assert(!batch->tensors[i]->memory);
        free(batch->tensors[i]);
    }
    free(batch->tensors);
    *batch = (struct pod_batch){0};
}

/* ---- finding ---- */

/* Its memory goes as soon as somebody looks. */
static void tensor_end(struct pod_tensors *tensors, struct pod_tensor *tensor)
{
    if (!tensor->memory)
        return;
    memory_detach(tensors, tensor);
    tensor->gone_ms = pst_now_ms();
}

static int tensor_visit(struct pod_tensors *tensors, struct liveness *known, struct pod_tensor *tensor,
                        pod_tensor_visit visit, void *ctx, char fault[PST_FAULT_BYTES])
{
    if (!liveness_of(known, tensor)) {
        snprintf(fault, PST_FAULT_BYTES, "tensor '%.150s' is gone: process %d has ended", tensor->key,
                 (int)tensor->owner.pid);
        tensor_end(tensors, tensor);
        return -ESTALE;
    }
    return visit(ctx, tensor, tensor->memory->fd, tensor->memory->number);
}

int tensors_find(struct pst_pod *pod, const char *key, pod_tensor_visit visit, void *ctx,
                 char fault[PST_FAULT_BYTES])
{
    struct liveness known = {.lives = false};
    struct pod_tensor *tensor;
    int r = -ENOENT;

    pst_assert(*key);
    pthread_mutex_lock(&pod->tensors->lock);
    tensor = tensors_get(pod->tensors, key);
    if (tensor)
        r = tensor_visit(pod->tensors, &known, tensor, visit, ctx, fault);
    else
        snprintf(fault, PST_FAULT_BYTES, "Key not found: %.150s", key);
    pthread_mutex_unlock(&pod->tensors->lock);
    return r;
}

/* A state dict below @key that went with its owner takes nothing else along. */
static int tensors_visit_below(struct pod_tensors *tensors, const char *key, pod_tensor_visit visit,
                               void *ctx, char fault[PST_FAULT_BYTES])
{
    struct range below = tensors_below(tensors, key);
    struct pod_tensor *itself = tensors_get(tensors, key), *gone = NULL;
    struct liveness known = {.lives = false};
    uint32_t visited = itself ? 1 : 0;
    int r = itself ? tensor_visit(tensors, &known, itself, visit, ctx, fault) : 0;

    for (uint32_t i = below.begin; r == 0 && i < below.end; i++) {
        struct pod_tensor *tensor = tensors->all[i];

        if (tensor->below_bytes > strlen(key) && !liveness_of(&known, tensor)) {
            gone = tensor;
            continue;
        }
        r = tensor_visit(tensors, &known, tensor, visit, ctx, fault);
        visited++;
    }
    if (r < 0 || visited > 0)
        return r;
    if (gone)
        return tensor_visit(tensors, &known, gone, visit, ctx, fault);
    snprintf(fault, PST_FAULT_BYTES, "Key not found: %.150s", key);
    return -ENOENT;
}

int tensors_find_below(struct pst_pod *pod, const char *key, pod_tensor_visit visit, void *ctx,
                       char fault[PST_FAULT_BYTES])
{
    int r;

    pst_assert(*key);
    pthread_mutex_lock(&pod->tensors->lock);
    r = tensors_visit_below(pod->tensors, key, visit, ctx, fault);
    pthread_mutex_unlock(&pod->tensors->lock);
    return r;
}

void tensors_each(struct pst_pod *pod, pod_tensor_visit visit, void *ctx)
{
    pthread_mutex_lock(&pod->tensors->lock);
    for (uint32_t i = 0, r = 0; r == 0 && i < pod->tensors->count; i++) {
        const struct pod_tensor *tensor = pod->tensors->all[i];

        r = tensor->memory && visit(ctx, tensor, tensor->memory->fd, tensor->memory->number) < 0;
    }
    pthread_mutex_unlock(&pod->tensors->lock);
}

/* ---- going ---- */

static bool tensors_are_of(const struct pod_tensors *tensors, struct range range, pid_t pid)
{
    pst_assert(range.begin <= range.end && range.end <= tensors->count);
    for (uint32_t i = range.begin; i < range.end; i++) {
        if (pid != 0 && tensors->all[i]->memory && tensors->all[i]->owner.pid != pid)
            return false;
    }
    return true;
}

int tensors_remove(struct pst_pod *pod, const char *key, bool all, pid_t pid)
{
    struct pod_tensors *tensors = pod->tensors;
    struct range one, below = {0};
    int r = -EPERM;

    pthread_mutex_lock(&tensors->lock);
    one.begin = tensors_at(tensors, key);
    one.end = one.begin + (tensors_get(tensors, key) ? 1 : 0);
    if (all)
        below = tensors_below(tensors, key);
    if (tensors_are_of(tensors, one, pid) && tensors_are_of(tensors, below, pid))
        r = (int)tensors_clear(tensors, key, all);
    pthread_mutex_unlock(&tensors->lock);
    return r;
}

struct sweep {
    struct pst_pod *pod;
    struct liveness known;
    uint64_t now_ms;
    struct owner ended; /* whose end was told */
};

/* Whether a tensor has been gone for so long that nobody asks for it any more. */
static bool sweep_one(const struct pod_tensor *tensor, void *ctx)
{
    struct sweep *sweep = ctx;

    /* One that this sweep has ended may have gone later than it began. */
    return !tensor->memory && sweep->now_ms >= tensor->gone_ms + POD_GONE_LIFE_MS;
}

static void sweep_tell(struct sweep *sweep, const struct pod_tensor *tensor)
{
    char line[PST_FAULT_BYTES + 64];

    if (owner_is(&sweep->ended, &tensor->owner))
        return;
    sweep->ended = tensor->owner;
    snprintf(line, sizeof(line), "agent: tensor '%.200s' and the like go with process %d", tensor->key,
             (int)tensor->owner.pid);
    pst_printable(line);
    sweep->pod->log(sweep->pod->log_ctx, line);
}

void tensors_sweep(struct pst_pod *pod)
{
    struct sweep sweep = {.pod = pod, .now_ms = pst_now_ms()};
    struct pod_tensors *tensors = pod->tensors;

    pthread_mutex_lock(&tensors->lock);
    for (uint32_t i = 0; i < tensors->count; i++) {
        struct pod_tensor *tensor = tensors->all[i];

        if (!tensor->memory || liveness_of(&sweep.known, tensor))
            continue;
        sweep_tell(&sweep, tensor);
        tensor_end(tensors, tensor);
    }
    pst_assert(tensors->count <= POD_TENSORS_MAX);
    tensors_drop(tensors, sweep_one, &sweep, (struct range){0, tensors->count});
    pthread_mutex_unlock(&tensors->lock);
}

void tensors_close(struct pst_pod *pod)
{
    struct pod_tensors *tensors = pod->tensors;

    if (!tensors)
        return;
    tensors_drop(tensors, tensor_is_any, NULL, (struct range){0, tensors->count});
    pst_assert(pst_list_empty(&tensors->memories) && tensors->memory_count == 0);
    pthread_mutex_destroy(&tensors->lock);
    free(tensors->all);
    free(tensors);
    pod->tensors = NULL;
}
