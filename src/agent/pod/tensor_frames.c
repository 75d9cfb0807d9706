/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_frames.c: commands on tensors. A tensor is said by its key, its handle ("ipc_handle", handle.h), its
 * shape, dtype and device. Descriptors of the host's memory come and go with the frame's length; a handle has
 * the number of its own. Whoever gets a tensor maps that memory itself, or hands the handle of a tensor into
 * which the agent copies.
 */
#include "agent/pod/frame_priv.h"
#include "agent/pod/tensors_priv.h"

#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>

static int refuse(struct frame *frame, int error, const char *what, const char *key, const char *why)
{
    pst_assert(error < 0);
    snprintf(frame->fault, sizeof(frame->fault), "%s '%.100s': %.100s", what, key, why);
    return error;
}

/* ---- tensors from JSON ---- */

/* What a tensor is besides its key, each a member of its own. */
struct said {
    const struct pst_json *handle, *shape, *dtype, *device;
};

static int said_shape(const struct pst_json *shape, struct pst_gpu_tensor *layout)
{
    const struct pst_json *one = pst_json_is_array(shape) ? pst_json_first(shape) : NULL;

    pst_assert(layout->rank <= PST_GPU_RANK_MAX);
    if (!pst_json_is_array(shape) || pst_json_count(shape) != layout->rank)
        return -EINVAL;
    for (uint32_t i = 0; i < layout->rank; i++, one = pst_json_next(one)) {
        int64_t length;

        if (!pst_json_integer(one, &length) || length < 0)
            return -EINVAL;
        layout->shape[i] = (uint64_t)length;
    }
    return 0;
}

static int said_memory(struct frame *frame, const char *key, const struct pst_gpu_handle *handle,
                       const struct pst_gpu_tensor *layout)
{
    uint64_t first, end;
    int r = 0;

    pst_assert(*key);
    if (handle->kind == PST_GPU_HOST) {
        if (handle->descriptor >= frame->came->count)
            return refuse(frame, -EBADF, "tensor", key, "its descriptor did not come with the frame");
        r = pst_gpu_host_check(handle, frame->came->fds[handle->descriptor]);
    }
    if (r < 0)
        return refuse(frame, r, "tensor", key,
                      r == -EPERM    ? "its memory is no file of memory that is sealed against shrinking"
                      : r == -ERANGE ? "its memory has another size than its handle says"
                                     : strerror(-r));
    if (pst_gpu_tensor_span(layout, handle->memory_bytes, &first, &end) < 0)
        return refuse(frame, -ERANGE, "tensor", key, "it does not lie within its memory");
    return 0;
}

static int said_parse(struct frame *frame, const char *key, const struct said *said,
                      struct pst_gpu_handle *handle, struct pst_gpu_tensor *layout, const char **device,
                      uint32_t *ordinal)
{
    const char *text = pst_json_text(said->handle), *dtype = pst_json_text(said->dtype);
    int r = text ? pst_gpu_handle_parse(text, handle, layout) : -EINVAL;

    pst_assert(*key);
    if (r < 0)
        return refuse(frame, r, "tensor", key, "'ipc_handle' is no handle that this agent knows");
    if (said_shape(said->shape, layout) < 0)
        return refuse(frame, -EINVAL, "tensor", key, "'shape' must be as many lengths as its handle has");
    if (!dtype || pst_gpu_tensor_set_dtype(layout, dtype) < 0) {
        snprintf(frame->fault, sizeof(frame->fault), "tensor '%.100s': unknown dtype '%.60s'", key,
                 dtype ? dtype : "");
        return -EOPNOTSUPP;
    }
    *device = pst_json_text(said->device);
    if (!*device)
        *device = handle->kind == PST_GPU_HOST ? "cpu" : "cuda";
    if (pst_gpu_ordinal_parse(handle->kind, *device, ordinal) < 0)
        return refuse(frame, -EINVAL, "tensor", key, "'device' is none on which such memory lies");
    return said_memory(frame, key, handle, layout);
}

/* Return: 0, *@out is the caller's to free. */
static int tensor_parse(struct frame *frame, const struct pst_json *object, const struct owner *owner,
                        struct pod_tensor **out)
{
    const struct said said = {pst_json_get(object, "ipc_handle"), pst_json_get(object, "shape"),
                              pst_json_get(object, "dtype"), pst_json_get(object, "device")};
    struct pst_gpu_tensor layout = {0};
    struct pst_gpu_handle handle = {0};
    struct pod_tensor *tensor;
    char key[PST_KEY_CAP];
    const char *device;
    uint32_t ordinal;
    int r = frame_key_of(frame, object, "key", key);

    pst_assert(frame->came);
    if (r == 0)
        r = said_parse(frame, key, &said, &handle, &layout, &device, &ordinal);
    if (r < 0)
        return r;
    tensor = calloc(1, sizeof(*tensor) + strlen(key) + 1);
    if (!tensor)
        return -ENOMEM;
    tensor->owner = *owner;
    tensor->put_ms = pst_wall_ns() / 1000000;
    tensor->handle = handle;
    tensor->layout = layout;
    snprintf(tensor->device, sizeof(tensor->device), "%s", device);
    memcpy(tensor->key, key, strlen(key) + 1);
    *out = tensor;
    return 0;
}

/* ---- put_tensor, register ---- */

/* The kernel says who asks; what the frame says counts where it does not. */
int frame_owner(struct frame *frame, struct owner *owner)
{
    pid_t pid = frame->caller->pid;
    int r = pid != 0 ? 0 : frame_pid(frame, &pid);

    pst_assert(frame->caller->pid >= 0);
    if (r == 0 && pid == 0) {
        snprintf(frame->fault, sizeof(frame->fault), "'pid' must say whose tensors they are");
        r = -EINVAL;
    }
    return r < 0 ? r : owner_of(pid, owner, frame->fault);
}

/* "" if the frame has no "state_dict". */
static int frame_state_dict(struct frame *frame, char below[PST_KEY_CAP])
{
    const struct pst_json *said = pst_json_get(frame->asked, "state_dict");

    below[0] = 0;
    return said && !pst_json_is_null(said) ? frame_key_of(frame, frame->asked, "state_dict", below) : 0;
}

static int check_below(struct frame *frame, const char *key, const char *below)
{
    size_t bytes = strlen(below);

    pst_assert(*key);
    if (bytes == 0 || (strncmp(key, below, bytes) == 0 && (key[bytes] == '/' || !key[bytes])))
        return 0;
    return refuse(frame, -EINVAL, "tensor", key, "it does not lie below 'state_dict'");
}

static int batch_put(struct frame *frame, struct pod_batch *batch)
{
    uint32_t count = batch->count;
    int r = tensors_put(frame->pod, batch, frame->came, frame->fault);

    pst_assert(count > 0);
    return r < 0 ? r : pst_json_add_integer(frame->answer, "count", count);
}

int frame_parse_tensors(struct frame *frame, const struct pst_json *tensors, const struct owner *owner,
                        const char *below, struct pod_batch *batch)
{
    size_t count = pst_json_is_array(tensors) ? pst_json_count(tensors) : 0;
    int r = 0;

    if (count == 0 || count > POD_TENSORS_MAX) {
        snprintf(frame->fault, sizeof(frame->fault), "'tensors' must be a list of 1 to %d", POD_TENSORS_MAX);
        return -EINVAL;
    }
    pst_assert(batch->count == 0);
    batch->tensors = calloc(count, sizeof(batch->tensors[0]));
    batch->below = below[0] ? below : NULL;
    if (!batch->tensors)
        return -ENOMEM;
    for (const struct pst_json *one = pst_json_first(tensors); r == 0 && one; one = pst_json_next(one)) {
        r = tensor_parse(frame, one, owner, &batch->tensors[batch->count]);
        if (r == 0)
            r = check_below(frame, batch->tensors[batch->count++]->key, below);
    }
    return r;
}

int frame_put_tensor(struct frame *frame)
{
    struct pod_batch batch = {0};
    char below[PST_KEY_CAP];
    struct owner owner;
    int r = frame_state_dict(frame, below);

    pst_assert(frame->caller->local);
    if (r == 0)
        r = frame_owner(frame, &owner);
    if (r == 0)
        r = frame_parse_tensors(frame, pst_json_get(frame->asked, "tensors"), &owner, below, &batch);
    if (r == 0)
        r = batch_put(frame, &batch);
    tensors_free(&batch);
    return r;
}

int frame_register_tensor(struct frame *frame)
{
    struct pod_batch batch = {.tensors = calloc(1, sizeof(batch.tensors[0]))};
    struct owner owner;
    int r = batch.tensors ? frame_owner(frame, &owner) : -ENOMEM;

    pst_assert(frame->caller->local);
    if (r == 0)
        r = tensor_parse(frame, frame->asked, &owner, &batch.tensors[0]);
    if (r == 0) {
        batch.count = 1;
        r = pst_json_add_text(frame->answer, "key", batch.tensors[0]->key);
    }
    if (r == 0)
        r = batch_put(frame, &batch);
    tensors_free(&batch);
    return r;
}

/* ---- get_tensor ---- */

static struct pst_json *shape_of(const struct pst_gpu_tensor *layout)
{
    struct pst_json *shape = pst_json_new_array();

    pst_assert(layout->rank <= PST_GPU_RANK_MAX);
    for (uint32_t i = 0; shape && i < layout->rank; i++) {
        if (pst_json_add_integer(shape, NULL, (int64_t)layout->shape[i]) < 0)
            shape = pst_json_free(shape);
    }
    return shape;
}

/* What every list of tensors says of one. */
static struct pst_json *tensor_object(const struct pod_tensor *tensor)
{
    struct pst_json *object = pst_json_new_object();

    pst_assert(*tensor->key);
    if (object && (pst_json_add_text(object, "key", tensor->key) < 0 ||
                   pst_json_add(object, "shape", shape_of(&tensor->layout)) < 0 ||
                   pst_json_add_text(object, "dtype", tensor->layout.dtype) < 0 ||
                   pst_json_add_text(object, "device", tensor->device) < 0 ||
                   pst_json_add_integer(object, "pid", tensor->owner.pid) < 0))
        object = pst_json_free(object);
    return object;
}

int shown_print(struct shown *shown, const struct pod_tensor *tensor, uint32_t descriptor)
{
    struct pst_gpu_handle handle = tensor->handle;
    struct pst_json *object = tensor_object(tensor);
    char text[PST_GPU_HANDLE_TEXT_MAX];

    pst_assert(shown->tensors);
    handle.descriptor = descriptor;
    pst_gpu_handle_print(&handle, &tensor->layout, text);
    if (!object || pst_json_add_text(object, "ipc_handle", text) < 0) {
        pst_json_free(object);
        return -ENOMEM;
    }
    return pst_json_add(shown->tensors, NULL, object);
}

int shown_add(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct shown *shown = ctx;
    int r = tensor->handle.kind == PST_GPU_HOST ? fds_keep(shown->go, shown->memories, fd, memory) : 0;

    return r < 0 ? r : shown_print(shown, tensor, (uint32_t)r);
}

void tensor_place(const struct pod_tensor *tensor, struct pst_gpu_place *place)
{
    *place = (struct pst_gpu_place){.handle = tensor->handle, .layout = tensor->layout, .fd = -1};
    pst_assert(pst_gpu_ordinal_parse(tensor->handle.kind, tensor->device, &place->ordinal) == 0);
}

/* A visit of one that is to be copied once the table is not locked any more: its descriptor is the place's.
 */
static int take_place(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct pst_gpu_place *place = ctx;

    pst_assert(tensor->memory);
    (void)memory;
    tensor_place(tensor, place);
    if (fd < 0)
        return 0;
    place->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return place->fd < 0 ? -errno : 0;
}

int frame_parse_place(struct frame *frame, const char *key, const struct pst_json *handle,
                      const struct pst_json *device, const struct pst_json *object,
                      struct pst_gpu_place *place)
{
    const struct said said = {handle, pst_json_get(object, "shape"), pst_json_get(object, "dtype"), device};
    const char *named;

    place->fd = -1;
    return said_parse(frame, key, &said, &place->handle, &place->layout, &named, &place->ordinal);
}

int frame_check_said(struct frame *frame, const char *key, const struct pst_json *object,
                     const struct pst_gpu_tensor *layout)
{
    const struct pst_json *shape = pst_json_get(object, "shape");
    const char *dtype = pst_json_text(pst_json_get(object, "dtype"));
    struct pst_gpu_tensor said = *layout;

    if (shape && (!pst_json_is_array(shape) || said_shape(shape, &said) < 0))
        return refuse(frame, -EINVAL, "tensor", key, "'shape' is not that of the tensor that was put");
    if (dtype && pst_gpu_tensor_set_dtype(&said, dtype) < 0)
        return refuse(frame, -EOPNOTSUPP, "tensor", key, "its dtype is unknown");
    return pst_gpu_tensor_alike(&said, layout)
               ? 0
               : refuse(frame, -EINVAL, "tensor", key, "the tensor that was put has another dtype or shape");
}

static int copy_into(struct frame *frame, const char *key, const struct pst_gpu_place *from,
                     const struct said *said, struct pst_gpu_devices *devices)
{
    struct pst_gpu_place to = {.fd = -1};
    char why[PST_FAULT_BYTES];
    const char *device;
    int r = said_parse(frame, key, said, &to.handle, &to.layout, &device, &to.ordinal);

    pst_assert(said->handle);
    if (r < 0)
        return r;
    if (to.handle.kind == PST_GPU_HOST)
        to.fd = frame->came->fds[to.handle.descriptor];
    r = pst_gpu_place_copy(devices, &to, from, why);
    return r < 0 ? refuse(frame, r, "tensor", key, why) : 0;
}

static int get_copy(struct frame *frame, struct shown *shown, const char *key, const struct said *said,
                    struct pst_gpu_devices *devices)
{
    struct pst_gpu_place from = {.fd = -1};
    struct pst_json *object = NULL;
    int r = tensors_find(frame->pod, key, take_place, &from, frame->fault);

    pst_assert(shown->tensors);
    if (r == 0)
        r = copy_into(frame, key, &from, said, devices);
    pst_close_fd(&from.fd);
    if (r < 0)
        return r;
    object = pst_json_new_object();
    if (!object || pst_json_add_text(object, "key", key) < 0) {
        pst_json_free(object);
        return -ENOMEM;
    }
    return pst_json_add(shown->tensors, NULL, object);
}

/* The members of a frame that have an element for each key. */
static const struct pst_json *first_of(const struct frame *frame, const char *name)
{
    const struct pst_json *list = pst_json_get(frame->asked, name);

    return pst_json_is_array(list) ? pst_json_first(list) : NULL;
}

static const struct pst_json *next_of(const struct pst_json *one)
{
    return one ? pst_json_next(one) : NULL;
}

static int get_keys(struct frame *frame, struct shown *shown, const struct pst_json *keys)
{
    struct said said = {first_of(frame, "dest_ipc_handles"), first_of(frame, "shapes"),
                        first_of(frame, "dtypes"), first_of(frame, "devices")};
    struct pst_gpu_devices devices = {0};
    int r = 0;

    pst_assert(pst_json_is_array(keys));
    for (const struct pst_json *one = pst_json_first(keys); r == 0 && one; one = pst_json_next(one)) {
        const char *text = pst_json_text(one);
        char key[PST_KEY_CAP];

        if (!text || pst_key_normalise(pst_bytes_of(text), key) <= 0) {
            snprintf(frame->fault, sizeof(frame->fault), "'keys' has one that cannot be a key");
            r = -EINVAL;
            break;
        }
        r = said.handle && !pst_json_is_null(said.handle)
                ? get_copy(frame, shown, key, &said, &devices)
                : tensors_find(frame->pod, key, shown_add, shown, frame->fault);
        said = (struct said){next_of(said.handle), next_of(said.shape), next_of(said.dtype),
                             next_of(said.device)};
    }
    pst_gpu_devices_close(&devices);
    return r;
}

int frame_get_tensor(struct frame *frame)
{
    const struct pst_json *keys = pst_json_get(frame->asked, "keys");
    size_t count = pst_json_is_array(keys) ? pst_json_count(keys) : 0;
    struct shown shown = {.go = frame->go};
    char below[PST_KEY_CAP];
    int r = frame_state_dict(frame, below);

    pst_assert(frame->go->count == 0);
    if (r == 0 && !below[0] && (count == 0 || count > POD_TENSORS_MAX)) {
        snprintf(frame->fault, sizeof(frame->fault), "'keys' must be a list of 1 to %d", POD_TENSORS_MAX);
        r = -EINVAL;
    }
    shown.tensors = r == 0 ? pst_json_new_array() : NULL;
    if (r < 0 || !shown.tensors)
        return r < 0 ? r : -ENOMEM;
    r = below[0] ? tensors_find_below(frame->pod, below, shown_add, &shown, frame->fault)
                 : get_keys(frame, &shown, keys);
    if (r == -E2BIG)
        snprintf(frame->fault, sizeof(frame->fault), "the tensors lie in more than %d memories", POD_FDS_MAX);
    if (r < 0) {
        pst_json_free(shown.tensors);
        return r;
    }
    r = pst_json_add(frame->answer, "tensors", shown.tensors);
    return r < 0 || !below[0] ? r : pst_json_add_text(frame->answer, "state_dict", below);
}

/* ---- the others ---- */

int frame_unregister_tensor(struct frame *frame, const char *key, pid_t pid)
{
    bool all = false;

    pst_assert(*key);
    pst_json_flag(pst_json_get(frame->asked, "recursive"), &all);
    return tensors_remove(frame->pod, key, all, pid);
}

static int list_one(void *ctx, const struct pod_tensor *tensor, int fd, uint64_t memory)
{
    struct pst_json *object = tensor_object(tensor);

    pst_assert(pst_json_is_array(ctx));
    (void)fd;
    (void)memory;
    if (!object || pst_json_add_number(object, "registered_at", (double)tensor->put_ms / 1e3) < 0) {
        pst_json_free(object);
        return -ENOMEM;
    }
    return pst_json_add(ctx, NULL, object);
}

int frame_list_tensors(struct frame *frame, struct pst_json *keys)
{
    pst_assert(pst_json_is_array(keys));
    tensors_each(frame->pod, list_one, keys);
    return 0;
}
