/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.c: a view as DLPack tensors see it: one run of bytes of the host, which may not be written. Only the
 * protocol's version 1 can say that, so older consumers are refused. Layouts: DLPack 1.0, dlpack.h.
 */
#include "core.h"

enum { DEVICE_CPU = 1, TYPE_UINT = 1, VERSION_MAJOR = 1, VERSION_MINOR = 0, FLAG_READ_ONLY = 1 };

#define CAPSULE_NAME "dltensor_versioned"

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct dl_managed {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct dl_managed *managed);
    uint64_t flags;
    struct dl_tensor tensor;
};

_Static_assert(sizeof(struct dl_tensor) == 48 && sizeof(struct dl_managed) == 80, "DLPack 1.0");

/* A tensor, and the buffer that it stands on. */
struct lent {
    struct dl_managed managed;
    Py_buffer buffer;
    int64_t shape[1], strides[1];
};

/* Consumers call it from any thread. */
static void give_back(struct dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    struct lent *lent = managed->manager;

    PyBuffer_Release(&lent->buffer);
    PyMem_Free(lent);
    PyGILState_Release(state);
}

static void end_capsule(PyObject *capsule)
{
    /* One that was taken has another name, and its consumer gives it back. */
    struct dl_managed *managed =
        PyCapsule_IsValid(capsule, CAPSULE_NAME) ? PyCapsule_GetPointer(capsule, CAPSULE_NAME) : NULL;

    if (managed)
        give_back(managed);
}

static PyObject *lend(PyObject *view)
{
    struct lent *lent = PyMem_Calloc(1, sizeof(*lent));
    PyObject *capsule;

    if (!lent)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(view, &lent->buffer, PyBUF_SIMPLE) < 0) {
        PyMem_Free(lent);
        return NULL;
    }
    lent->shape[0] = lent->buffer.len;
    lent->strides[0] = 1;
    lent->managed = (struct dl_managed){
        .major = VERSION_MAJOR,
        .minor = VERSION_MINOR,
        .manager = lent,
        .deleter = give_back,
        .flags = FLAG_READ_ONLY,
        .tensor = {.data = lent->buffer.buf,
                   .device_type = DEVICE_CPU,
                   .ndim = 1,
                   .type_code = TYPE_UINT,
                   .type_bits = 8,
                   .type_lanes = 1,
                   .shape = lent->shape,
                   .strides = lent->strides},
    };
    capsule = PyCapsule_New(&lent->managed, CAPSULE_NAME, end_capsule);
    if (!capsule)
        give_back(&lent->managed);
    return capsule;
}

PyObject *core_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static struct core_call call = {
        "__dlpack__", 0, 0, {"stream", "max_version", "dl_device", "copy"}, {NULL}};
    PyObject *given[CORE_ARGS_MAX];
    uint64_t major = 0;
    bool copy;

    if (core_args(&call, args, count, keywords, given) < 0 || core_flag(given[3], &copy) < 0)
        return NULL;
    if (!core_absent(given[1]) && PyTuple_Check(given[1]) && PyTuple_Size(given[1]) == 2 &&
        core_number(PyTuple_GetItem(given[1], 0), "max_version", UINT32_MAX, &major) < 0)
        return NULL;
    if (major < VERSION_MAJOR || copy) {
        PyErr_SetString(PyExc_BufferError,
                        copy ? "a view is not copied by DLPack: use get()"
                             : "a view is read-only, which needs DLPack 1.0 on the other side");
        return NULL;
    }
    return lend(self);
}

PyObject *core_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("ii", DEVICE_CPU, 0);
}
