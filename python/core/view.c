/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: a value read in place, as a buffer that Python sees without a copy. The pin ends with the last
 * buffer that was handed out, after release(), the end of a with block or of the object.
 */
#include "core.h"
#include "docs.h"

struct core_view {
    PyObject ob_base;
    struct core_store *store; /* used until the pin ends; then NULL */
    struct penstock_view view;
    Py_ssize_t exports;
    bool released;
};

static struct core_view *view_of(PyObject *self)
{
    return (struct core_view *)self;
}

/* Keeps the GIL: the library waits for nobody here, and another package's thread that drops the last buffer
 * when Python ends would not get it again. */
static void end_pin(struct core_view *view)
{
    struct core_store *store = view->store;
    struct penstock *handle = store ? store->handle : NULL;

    if (!store)
        return;
    core_assert(view->exports == 0 && handle);
    view->store = NULL;
    penstock_view_release(handle, &view->view);
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

PyObject *core_view_open(PyObject *self, PyObject *key)
{
    struct core_store *store = (struct core_store *)self;
    struct core_view *view = view_of(PyType_GenericAlloc(core_classes.View, 0));
    struct penstock *handle;
    Py_buffer borrowed;
    int r = 0;

    if (!view)
        return NULL;
    if (core_borrow_key(key, "key", &borrowed) < 0) {
        Py_DECREF((PyObject *)view);
        return NULL;
    }
    handle = core_store_use(store);
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_view(handle, borrowed.buf, (size_t)borrowed.len, &view->view);
        Py_END_ALLOW_THREADS;
        if (r == 0) {
            view->store = (struct core_store *)Py_NewRef(self);
        } else {
            core_raise(r, &borrowed);
            core_store_leave(store);
        }
    }
    core_return(&borrowed);
    if (!view->store)
        Py_CLEAR(view);
    return (PyObject *)view;
}

static PyObject *view_release(PyObject *self, PyObject *unused)
{
    struct core_view *view = view_of(self);

    (void)unused;
    view->released = true;
    if (view->exports == 0)
        end_pin(view);
    Py_RETURN_NONE;
}

static bool usable(const struct core_view *view)
{
    if (view->released || !view->store)
        PyErr_SetString(PyExc_ValueError, "the view was released");
    return !view->released && view->store;
}

static void end_export(struct core_view *view)
{
    core_assert(view->exports > 0);
    if (--view->exports == 0 && view->released)
        end_pin(view);
}

enum { SHORT_COPY_BYTES = 16 << 10 }; /* takes less than another thread's turn with the GIL */

static PyObject *view_tobytes(PyObject *self, PyObject *unused)
{
    struct core_view *view = view_of(self);
    PyObject *out = usable(view) ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)view->view.bytes) : NULL;
    char *to = out ? PyBytes_AsString(out) : NULL;

    (void)unused;
    if (!out || view->view.bytes == 0)
        return out;
    if (view->view.bytes <= SHORT_COPY_BYTES) {
        memcpy(to, view->view.data, view->view.bytes);
        return out;
    }
    view->exports++; /* the bytes stay until the copy is made, also if another thread releases the view */
    Py_BEGIN_ALLOW_THREADS;
    memcpy(to, view->view.data, view->view.bytes);
    Py_END_ALLOW_THREADS;
    end_export(view);
    return out;
}

static int view_getbuffer(PyObject *self, Py_buffer *out, int flags)
{
    struct core_view *view = view_of(self);

    out->obj = NULL;
    if (!usable(view))
        return -1;
    if (PyBuffer_FillInfo(out, self, (void *)(uintptr_t)view->view.data, (Py_ssize_t)view->view.bytes, 1,
                          flags) < 0)
        return -1;
    view->exports++;
    return 0;
}

static void view_releasebuffer(PyObject *self, Py_buffer *buffer)
{
    (void)buffer;
    end_export(view_of(self));
}

static PyObject *view_repr(PyObject *self)
{
    return core_repr("View", view_of(self)->store, NULL);
}

static int view_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)view_of(self)->store);
    return 0;
}

static void view_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    end_pin(view_of(self));
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyObject *view_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return usable(view_of(self)) ? Py_NewRef(self) : NULL;
}

static PyObject *view_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    return view_release(self, NULL);
}

static Py_ssize_t view_len(PyObject *self)
{
    return usable(view_of(self)) ? (Py_ssize_t)view_of(self)->view.bytes : -1;
}

static PyObject *view_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return usable(view_of(self)) ? PyLong_FromUnsignedLongLong(view_of(self)->view.bytes) : NULL;
}

static PyObject *view_generation(PyObject *self, void *unused)
{
    (void)unused;
    return usable(view_of(self)) ? PyLong_FromUnsignedLongLong(view_of(self)->view.generation) : NULL;
}

static PyObject *view_released(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(view_of(self)->released);
}

static PyMethodDef methods[] = {
    {"release", view_release, METH_NOARGS, CORE_DOC_View_release},
    {"tobytes", view_tobytes, METH_NOARGS, CORE_DOC_View_tobytes},
    {"__dlpack__", CORE_FAST(core_dlpack), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"__dlpack_device__", core_dlpack_device, METH_NOARGS, NULL},
    {"__enter__", view_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_FAST(view_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"nbytes", view_nbytes, NULL, CORE_DOC_View_nbytes, NULL},
    {"generation", view_generation, NULL, CORE_DOC_View_generation, NULL},
    {"released", view_released, NULL, CORE_DOC_View_released, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_View},
    {Py_tp_dealloc, (void *)view_dealloc},
    {Py_tp_repr, (void *)view_repr},
    {Py_tp_traverse, (void *)view_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_length, (void *)view_len},
    {Py_bf_getbuffer, (void *)view_getbuffer},
    {Py_bf_releasebuffer, (void *)view_releasebuffer},
    {0, NULL},
};

PyType_Spec core_view_spec = {
    .name = "penstock._core.View",
    .basicsize = sizeof(struct core_view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
