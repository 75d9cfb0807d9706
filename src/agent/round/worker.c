/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c: the mover's own side. It does what the agent says and ends; whatever holds it up, the agent ends
 * it. The agent's socket is its standard input, and blocks.
 */
#include "agent/round/lines.h"
#include "agent/round/mover.h"
#include "agent/pod.h"
#include "base/hex.h"

#include <stdio.h>

enum { ROOT = 0 }; /* the rank that has the tensors */

enum {
    PLAN_BYTES_MAX = 64 << 20,
    READ_BYTES = 64 << 10,
    CHUNK_BYTES = 256 << 20, /* that one broadcast moves */
    CALLS_MAX = 256,         /* broadcasts that are begun before they are waited for */
};

struct moved {
    struct pst_gpu_memory *memory;
    struct pst_gpu_tensor layout;
};

struct work {
    struct pst_json *plan;
    uint32_t rank, world_size, count;
    struct moved *tensors;
    struct pst_gpu_devices devices;
    struct pst_gpu *gpu; /* one of them */
    struct pst_nccl *nccl;
    uint32_t calls; /* begun, and not waited for */
    uint64_t bytes; /* of these */
    char fault[PST_FAULT_BYTES];
};

static int work_fail(struct work *work, int error, const char *what)
{
    pst_assert(*what);
    pst_assert(error < 0);
    snprintf(work->fault, sizeof(work->fault), "%s: %s", what, strerror(-error));
    return error;
}

/* ---- the plan ---- */

static int read_plan(struct work *work)
{
    pst_cleanup_free char *text = NULL;
    const char *fault = NULL;
    size_t bytes = 0;

    pst_assert(!work->plan);
    while (bytes == 0 || text[bytes - 1] != '\n') {
        char *more = bytes < PLAN_BYTES_MAX ? realloc(text, bytes + READ_BYTES) : NULL;
        ssize_t n;

        if (!more)
            return work_fail(work, -ENOMEM, "the plan");
        text = more;
        n = read(STDIN_FILENO, text + bytes, READ_BYTES);
        if (n <= 0)
            return work_fail(work, n < 0 ? -errno : -ECONNRESET, "the plan");
        bytes += (size_t)n;
    }
    if (pst_json_parse_answer((struct pst_bytes){text, bytes - 1}, &work->plan, &fault) == 0)
        return 0;
    snprintf(work->fault, sizeof(work->fault), "the plan: %s", fault);
    return -EBADMSG;
}

static int read_shape(const struct pst_json *shape, struct pst_gpu_tensor *layout)
{
    const struct pst_json *one = pst_json_first(shape);
    int64_t length;

    pst_assert(layout->rank <= PST_GPU_RANK_MAX);
    for (uint32_t i = 0; i < layout->rank; i++, one = pst_json_next(one)) {
        if (!pst_json_integer(one, &length) || length < 0)
            return -EINVAL;
        layout->shape[i] = (uint64_t)length;
    }
    return one ? -EINVAL : 0;
}

static int read_number(const struct pst_json *object, const char *name, uint32_t *out)
{
    int64_t number;

    pst_assert(*name);
    if (!pst_json_integer(pst_json_get(object, name), &number) || number < 0 || number > INT32_MAX)
        return -EINVAL;
    *out = (uint32_t)number;
    return 0;
}

static int open_tensor(struct work *work, const struct pst_json *object, uint32_t ordinal, struct moved *out)
{
    const char *handle = pst_json_text(pst_json_get(object, "ipc_handle"));
    const char *dtype = pst_json_text(pst_json_get(object, "dtype"));
    struct pst_gpu_place place = {.ordinal = ordinal, .fd = -1};
    uint64_t first, end;
    int r = handle && dtype ? pst_gpu_handle_parse(handle, &place.handle, &place.layout) : -EINVAL;

    pst_assert(!out->memory);
    if (r == 0)
        r = pst_gpu_tensor_set_dtype(&place.layout, dtype);
    if (r == 0)
        r = read_shape(pst_json_get(object, "shape"), &place.layout);
    if (r == 0)
        r = pst_gpu_tensor_span(&place.layout, place.handle.memory_bytes, &first, &end);
    if (r == 0 && first == end)
        r = -EINVAL;
    if (r < 0)
        return work_fail(work, r, "a tensor of the plan");
    out->layout = place.layout;
    return pst_gpu_place_import(&work->devices, &place, work->rank != ROOT, &out->memory, work->fault);
}

static int open_tensors(struct work *work)
{
    const struct pst_json *tensors = pst_json_get(work->plan, "tensors");
    uint32_t ordinal = 0;
    int r = read_number(work->plan, "rank", &work->rank);

    pst_assert(!work->tensors && work->count == 0);
    if (r == 0)
        r = read_number(work->plan, "world_size", &work->world_size);
    if (r == 0)
        r = read_number(work->plan, "device", &ordinal);
    if (r < 0)
        return work_fail(work, r, "the plan");
    work->tensors = calloc(pst_json_count(tensors) + 1, sizeof(*work->tensors));
    r = work->tensors ? pst_gpu_devices_get(&work->devices, PST_GPU_CUDA, ordinal, &work->gpu, work->fault)
                      : work_fail(work, -ENOMEM, "the plan");
    for (const struct pst_json *one = pst_json_first(tensors); r == 0 && one; one = pst_json_next(one)) {
        r = open_tensor(work, one, ordinal, &work->tensors[work->count]);
        work->count += r == 0 ? 1 : 0;
    }
    return r;
}

/* ---- beginning ---- */

static int say_ready(struct work *work)
{
    struct pst_json *line = pst_json_new_object();
    char text[2 * PST_NCCL_ID_BYTES + 1];
    uint8_t id[PST_NCCL_ID_BYTES];
    int r = pst_nccl_load(work->fault);

    pst_assert(work->gpu);
    if (r == 0 && work->rank == ROOT)
        r = pst_nccl_id(id, work->fault);
    if (r == 0 && (!line || pst_json_add_flag(line, "ready", true) < 0))
        r = work_fail(work, -ENOMEM, "ready");
    if (r == 0 && work->rank == ROOT) {
        pst_hex_print(id, sizeof(id), text);
        if (pst_json_add_text(line, "id", text) < 0)
            r = work_fail(work, -ENOMEM, "ready");
    }
    if (r == 0 && round_say(STDIN_FILENO, line) < 0)
        r = work_fail(work, -ECONNRESET, "the agent");
    pst_json_free(line);
    return r;
}

/* All ranks' movers are there when it returns. */
static int hear_id(struct work *work)
{
    struct round_lines lines = {0};
    struct pst_json *line = NULL;
    uint8_t id[PST_NCCL_ID_BYTES];
    const char *text;
    int r = round_lines_hear(&lines, STDIN_FILENO, &line);

    pst_assert(!work->nccl);
    if (r <= 0)
        return work_fail(work, r < 0 ? r : -ECONNRESET, "the agent");
    text = pst_json_text(pst_json_get(line, "id"));
    r = text && strlen(text) == 2 * sizeof(id) && pst_hex_parse(text, id, sizeof(id)) ? 0 : -EBADMSG;
    pst_json_free(line);
    if (r < 0)
        return work_fail(work, r, "the id");
    return pst_nccl_open(work->gpu, id, work->rank, work->world_size, &work->nccl, work->fault);
}

/* ---- moving ---- */

/* Waits for what was begun, and says that it has moved. */
static int work_settle(struct work *work)
{
    int r = pst_gpu_settle(work->gpu);

    pst_assert(work->nccl);
    if (r < 0)
        return work_fail(work, r, "the GPU");
    r = pst_nccl_check(work->nccl, work->fault);
    if (r == 0 && round_say_text(STDIN_FILENO, NULL, NULL) < 0)
        r = work_fail(work, -ECONNRESET, "the agent");
    work->calls = 0;
    work->bytes = 0;
    return r;
}

static int move_bytes(struct work *work, struct pst_gpu_memory *memory, uint64_t offset, uint64_t bytes)
{
    int r = 0;

    pst_assert(offset <= memory->bytes && bytes <= memory->bytes - offset);
    while (r == 0 && bytes > 0) {
        uint64_t chunk = pst_min(bytes, (uint64_t)CHUNK_BYTES);

        if (work->calls == CALLS_MAX || work->bytes + chunk > CHUNK_BYTES)
            r = work_settle(work);
        if (r == 0)
            r = pst_nccl_broadcast(work->nccl, memory, offset, chunk, ROOT, work->fault);
        work->calls++;
        work->bytes += chunk;
        offset += chunk;
        bytes -= chunk;
    }
    return r;
}

/* Its elements lie apart: they are moved by way of memory in which they do not. */
static int move_apart(struct work *work, const struct moved *tensor, const struct pst_gpu_tensor *dense,
                      uint64_t bytes)
{
    bool has_it = work->rank == ROOT;
    struct pst_gpu_memory *scratch = NULL;
    int r;

    pst_assert(bytes > 0);
    r = pst_gpu_cuda.allocate(work->gpu, bytes, &scratch);
    if (r == 0 && has_it)
        r = pst_gpu_copy_tensor(scratch, dense, tensor->memory, &tensor->layout);
    if (r < 0) {
        pst_gpu_give(scratch);
        return work_fail(work, r, "a tensor with gaps");
    }
    r = move_bytes(work, scratch, 0, bytes);
    if (r == 0 && !has_it && (r = pst_gpu_copy_tensor(tensor->memory, &tensor->layout, scratch, dense)) < 0)
        r = work_fail(work, r, "a tensor with gaps");
    if (r == 0)
        r = work_settle(work);
    pst_gpu_give(scratch);
    return r;
}

static int move_tensor(struct work *work, const struct moved *tensor)
{
    struct pst_gpu_tensor dense = tensor->layout;
    bool is_dense = true;
    uint64_t first, end;
    int r;

    pst_assert(work->world_size > 1);
    pst_assert(!pst_gpu_tensor_is_empty(&dense));
    dense.offset_bytes = 0;
    r = pst_gpu_tensor_set_dense(&dense);
    if (r == 0)
        r = pst_gpu_tensor_span(&dense, UINT64_MAX, &first, &end);
    if (r < 0)
        return work_fail(work, r, "a tensor");
    for (uint32_t i = 0; i < dense.rank; i++)
        is_dense = is_dense && (dense.shape[i] == 1 || dense.strides[i] == tensor->layout.strides[i]);
    return is_dense ? move_bytes(work, tensor->memory, tensor->layout.offset_bytes, end)
                    : move_apart(work, tensor, &dense, end);
}

static int move_all(struct work *work)
{
    int r = 0;

    pst_assert(work->calls == 0 && work->bytes == 0);
    for (uint32_t i = 0; r == 0 && i < work->count; i++)
        r = move_tensor(work, &work->tensors[i]);
    return r < 0 ? r : work_settle(work);
}

/* ---- beginning and end ---- */

static void work_close(struct work *work, bool failed)
{
    work->nccl = pst_nccl_close(work->nccl, failed);
    for (uint32_t i = 0; i < work->count; i++)
        pst_gpu_give(work->tensors[i].memory);
    free(work->tensors);
    pst_gpu_devices_close(&work->devices);
    pst_json_free(work->plan);
}

/* The others may still be reading what this rank has sent: it stays until the agent has heard of all. */
static void work_stay(void)
{
    char dropped[64];

    if (round_say_text(STDIN_FILENO, "done", "") < 0)
        return;
    while (read(STDIN_FILENO, dropped, sizeof(dropped)) > 0)
        ;
}

int pst_pod_move(void)
{
    struct work work = {0};
    int r = read_plan(&work);

    if (r == 0)
        r = open_tensors(&work);
    if (r == 0)
        r = say_ready(&work);
    if (r == 0)
        r = hear_id(&work);
    if (r == 0)
        r = move_all(&work);
    if (r < 0 && !work.fault[0])
        work_fail(&work, r, "tensors");
    if (r < 0)
        round_say_text(STDIN_FILENO, "error", work.fault);
    else
        work_stay();
    work_close(&work, r < 0);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
