/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gathering.c: tensors become the files of a broadcast. The host's memories are sent as they are; tensors of
 * a GPU are copied into one memory of the host first, without gaps, and travel as the host's.
 */
#include "agent/pod/gathering_priv.h"

#include "agent/pod/casts_priv.h"
#include "agent/pod/frame_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { ALIGN_BYTES = 64 }; /* of a tensor that is copied */

/* A tensor as the table said it. */
struct item {
    struct pod_tensor *tensor; /* a copy, without its memory */
    uint32_t descriptor;       /* of the host's memory */
};

struct gathering {
    struct shown shown;
    struct pod_fds memories;
    struct item *items;
    uint32_t count, capacity;
};

void cast_memory_name(uint32_t number, char name[POD_MEMORY_NAME_BYTES])
{
    pst_assert(number < POD_FDS_MAX);
    snprintf(name, POD_MEMORY_NAME_BYTES, "%04u", number);
}

_Static_assert((int)POD_FDS_MAX <= 9999, "names of memories sort as their numbers");

struct gathering *gathering_open(void)
{
    struct gathering *gathering = calloc(1, sizeof(*gathering));

    if (gathering)
        gathering->shown.go = &gathering->memories;
    return gathering;
}

struct gathering *gathering_close(struct gathering *gathering)
{
    if (!gathering)
        return NULL;
    for (uint32_t i = 0; i < gathering->count; i++)
        free(gathering->items[i].tensor);
    for (uint32_t i = 0; i < gathering->memories.count; i++)
        pst_close_fd(&gathering->memories.fds[i]);
    pst_json_free(gathering->shown.tensors);
    free(gathering->items);
    free(gathering);
    return NULL;
}

/* ---- collecting ---- */

static int items_grow(struct gathering *gathering)
{
    uint32_t capacity = gathering->capacity ? 2 * gathering->capacity : 64;
    struct item *more = realloc(gathering->items, capacity * sizeof(*more));

    pst_assert(gathering->count == gathering->capacity);
    if (!more)
        return -ENOMEM;
    gathering->items = more;
    gathering->capacity = capacity;
    return 0;
}

int gathering_add(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct gathering *gathering = ctx;
    size_t bytes = sizeof(*tensor) + strlen(tensor->key) + 1;
    struct item *item;
    int r = tensor->handle.kind == PST_GPU_HOST
                ? fds_keep(gathering->shown.go, gathering->shown.memories, fd, memory)
                : 0;

    pst_assert(tensor->memory);
    if (r >= 0 && gathering->count == gathering->capacity && items_grow(gathering) < 0)
        r = -ENOMEM;
    if (r < 0)
        return r;
    item = &gathering->items[gathering->count];
    *item = (struct item){.tensor = malloc(bytes), .descriptor = (uint32_t)r};
    if (!item->tensor)
        return -ENOMEM;
    memcpy(item->tensor, tensor, bytes);
    item->tensor->memory = NULL;
    gathering->count++;
    return 0;
}

/* ---- tensors of GPUs ---- */

/* Tensors that are copied, and where. */
struct staging {
    struct pst_gpu_devices devices;
    struct pst_gpu_memory *memory; /* NULL: there are none */
    struct pst_gpu_handle handle;
    uint64_t bytes;
};

/* Lays a tensor behind those before it. Return: 0; -EOVERFLOW. */
static int stage_lay(struct staging *staging, const struct pod_tensor *tensor, struct pst_gpu_tensor *dense)
{
    uint64_t first, end;
    int r;

    pst_assert(staging->bytes % ALIGN_BYTES == 0);
    *dense = tensor->layout;
    dense->offset_bytes = staging->bytes;
    r = pst_gpu_tensor_set_dense(dense);
    if (r == 0)
        r = pst_gpu_tensor_span(dense, INT64_MAX, &first, &end);
    if (r == 0)
        staging->bytes = pst_div_up(end, ALIGN_BYTES) * ALIGN_BYTES;
    return r;
}

/* Into the places that stage_lay() gives, once more from the beginning. */
static int stage_copy(struct staging *staging, struct pod_tensor *tensor, char fault[PST_FAULT_BYTES])
{
    struct pst_gpu_place place;
    struct pst_gpu_memory *from = NULL;
    struct pst_gpu_tensor dense;
    int r = stage_lay(staging, tensor, &dense);

    pst_assert(r == 0);
    tensor_place(tensor, &place);
    if (!pst_gpu_tensor_is_empty(&dense)) {
        r = pst_gpu_place_import(&staging->devices, &place, false, &from, fault);
        if (r == 0)
            r = pst_gpu_copy_tensor(staging->memory, &dense, from, &place.layout);
        if (r == 0)
            r = pst_gpu_settle(from->gpu);
        pst_gpu_give(from);
    }
    tensor->handle = staging->handle;
    tensor->layout = dense;
    snprintf(tensor->device, sizeof(tensor->device), "cpu");
    return r;
}

static int stage_all(struct gathering *gathering, struct staging *staging, int *fd,
                     char fault[PST_FAULT_BYTES])
{
    struct pst_gpu_tensor dense;
    char why[PST_FAULT_BYTES] = "";
    struct pst_gpu *host;
    int r = pst_gpu_devices_get(&staging->devices, PST_GPU_HOST, 0, &host, fault), own;

    for (uint32_t i = 0; r == 0 && i < gathering->count; i++)
        if (gathering->items[i].tensor->handle.kind != PST_GPU_HOST)
            r = stage_lay(staging, gathering->items[i].tensor, &dense);
    if (r == 0)
        r = pst_gpu_host.allocate(host, pst_max(staging->bytes, ALIGN_BYTES), &staging->memory);
    if (r == 0)
        r = pst_gpu_host.export_handle(staging->memory, &staging->handle, &own);
    if (r < 0)
        return r;
    pst_assert(staging->memory->bytes >= staging->bytes);
    staging->bytes = 0;
    for (uint32_t i = 0; r == 0 && i < gathering->count; i++) {
        struct item *item = &gathering->items[i];

        if (item->tensor->handle.kind == PST_GPU_HOST)
            continue;
        r = stage_copy(staging, item->tensor, why);
        item->descriptor = gathering->memories.count;
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "tensor '%.100s': %.140s", item->tensor->key,
                     why[0] ? why : strerror(-r));
    }
    *fd = r == 0 ? fcntl(own, F_DUPFD_CLOEXEC, 0) : -1;
    return r == 0 && *fd < 0 ? -errno : r;
}

/* Copies those that lie on GPUs, if there are any. */
static int gathering_stage(struct gathering *gathering, char fault[PST_FAULT_BYTES])
{
    struct staging staging = {.bytes = 0};
    bool any = false;
    int fd = -1, r;

    pst_assert(gathering->memories.count <= POD_FDS_MAX);
    for (uint32_t i = 0; i < gathering->count; i++)
        any = any || gathering->items[i].tensor->handle.kind != PST_GPU_HOST;
    if (!any)
        return 0;
    if (gathering->memories.count == POD_FDS_MAX)
        return -E2BIG;
    r = stage_all(gathering, &staging, &fd, fault);
    pst_gpu_give(staging.memory);
    pst_gpu_devices_close(&staging.devices);
    if (r == 0)
        gathering->memories.fds[gathering->memories.count++] = fd;
    return r;
}

/* ---- files ---- */

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

int gathering_finish(struct gathering *gathering, struct pst_broadcast_files *out,
                     char fault[PST_FAULT_BYTES])
{
    pst_cleanup_free char *table = NULL;
    int r = gathering_stage(gathering, fault);

    pst_assert(!gathering->shown.tensors);
    gathering->shown.tensors = r == 0 ? pst_json_new_array() : NULL;
    if (r == 0 && !gathering->shown.tensors)
        r = -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < gathering->count; i++)
        r = shown_print(&gathering->shown, gathering->items[i].tensor, gathering->items[i].descriptor);
    table = r == 0 ? pst_json_print(gathering->shown.tensors) : NULL;
    if (r == 0)
        r = table ? files_fill(out, &gathering->memories, table) : -ENOMEM;
    return r;
}
