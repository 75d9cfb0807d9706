/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: what happens to the keys of a prefix, as an iterator that waits. It looks for signals between
 * slices of a wait, and ends when another thread closes it.
 */
#include "core.h"
#include "docs.h"

enum { SLICE_MS = 200 };

struct core_watch {
    PyObject ob_base;
    struct core_store *store; /* used until the end; then NULL */
    struct penstock_watch *watch;
    bool running; /* a thread is in the library */
    bool closed;
};

static struct core_watch *watch_of(PyObject *self)
{
    return (struct core_watch *)self;
}

static void end_watch(struct core_watch *w)
{
    struct core_store *store = w->store;
    struct penstock_watch *watch = w->watch;

    if (!store)
        return;
    core_assert(watch && !w->running);
    w->store = NULL;
    w->watch = NULL;
    Py_BEGIN_ALLOW_THREADS;
    penstock_watch_close(watch);
    Py_END_ALLOW_THREADS;
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

PyObject *core_watch_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static struct core_call call = {"watch", 0, 1, {"prefix"}, {NULL}};
    struct core_watch *w = watch_of(PyType_GenericAlloc(core_classes.Watch, 0));
    struct core_store *store = (struct core_store *)self;
    struct penstock *handle = NULL;
    PyObject *given[CORE_ARGS_MAX];
    Py_buffer prefix = {0};
    int r;

    if (w && core_args(&call, args, count, keywords, given) == 0 &&
        core_borrow_prefix(given[0], "prefix", &prefix) == 0)
        handle = core_store_use(store);
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_watch_open(handle, prefix.buf, (size_t)prefix.len, &w->watch);
        Py_END_ALLOW_THREADS;
        if (r == 0) {
            w->store = (struct core_store *)Py_NewRef(self);
        } else {
            core_raise(r, NULL);
            core_store_leave(store);
        }
    }
    core_return(&prefix);
    if (w && !w->store)
        Py_CLEAR(w);
    return (PyObject *)w;
}

static PyObject *event_object(const struct penstock_event *event)
{
    static const char *const names[] = {
        [PENSTOCK_EVENT_PUT] = "put",         [PENSTOCK_EVENT_DELETED] = "deleted",
        [PENSTOCK_EVENT_EVICTED] = "evicted", [PENSTOCK_EVENT_MISSED] = "missed",
        [PENSTOCK_EVENT_RESET] = "reset",
    };

    core_assert(event->what >= PENSTOCK_EVENT_PUT && event->what <= PENSTOCK_EVENT_RESET);
    return PyObject_CallFunction(core_classes.Event, "sy#KKK", names[event->what],
                                 event->key ? event->key : "", (Py_ssize_t)event->key_bytes,
                                 event->value_bytes, event->generation, event->missed);
}

static bool usable(const struct core_watch *w)
{
    if (w->running)
        PyErr_SetString(PyExc_ValueError, "another thread is using the watch");
    else if (!w->store)
        PyErr_SetString(PyExc_ValueError, "the watch is closed");
    return !w->running && w->store;
}

/* Waits for an event: @left_ms, or without end when that is negative. NULL: none came, or with an exception.
 */
static PyObject *wait_for_event(struct core_watch *w, int64_t left_ms)
{
    struct penstock_event event = {0};
    PyObject *out = NULL;
    int r = 0, slice_ms;

    w->running = true; /* also while a signal is handled or the event is made, which may call this watch */
    do {
        slice_ms = left_ms < 0 || left_ms > SLICE_MS ? SLICE_MS : (int)left_ms;
        left_ms -= left_ms < 0 ? 0 : slice_ms;
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_watch_next(w->watch, slice_ms, &event);
        Py_END_ALLOW_THREADS;
        if (w->closed)
            break;
        if (r == 1)
            out = event_object(&event);
        else if (r < 0)
            core_raise(r, NULL);
        else
            r = PyErr_CheckSignals();
    } while (r == 0 && !w->closed && left_ms != 0);
    w->running = false;
    if (w->closed)
        end_watch(w);
    return out;
}

static PyObject *watch_next(PyObject *self)
{
    return usable(watch_of(self)) ? wait_for_event(watch_of(self), -1) : NULL;
}

/* An event within a time, else None. */
static PyObject *watch_poll(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static struct core_call call = {"poll", 0, 1, {"timeout"}, {NULL}};
    PyObject *given[CORE_ARGS_MAX], *out;
    uint64_t timeout_ms = 0;

    if (core_args(&call, args, count, keywords, given) < 0 ||
        (!core_absent(given[0]) && core_seconds(given[0], "timeout", &timeout_ms) < 0) ||
        !usable(watch_of(self)))
        return NULL;
    out = wait_for_event(watch_of(self), (int64_t)timeout_ms);
    return out || PyErr_Occurred() ? out : Py_NewRef(Py_None);
}

static PyObject *watch_fileno(PyObject *self, PyObject *unused)
{
    int fd;

    (void)unused;
    if (!usable(watch_of(self)))
        return NULL;
    fd = penstock_watch_fd(watch_of(self)->watch);
    return fd < 0 ? core_raise(fd, NULL) : PyLong_FromLong(fd);
}

static PyObject *watch_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    watch_of(self)->closed = true;
    if (!watch_of(self)->running) /* else the thread that waits ends it */
        end_watch(watch_of(self));
    Py_RETURN_NONE;
}

static PyObject *watch_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return usable(watch_of(self)) ? Py_NewRef(self) : NULL;
}

static PyObject *watch_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    return watch_close(self, NULL);
}

static PyObject *watch_repr(PyObject *self)
{
    return core_repr("Watch", watch_of(self)->store, NULL);
}

static int watch_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)watch_of(self)->store);
    return 0;
}

static void watch_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    end_watch(watch_of(self));
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyMethodDef methods[] = {
    {"poll", CORE_FAST(watch_poll), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Watch_poll},
    {"fileno", watch_fileno, METH_NOARGS, CORE_DOC_Watch_fileno},
    {"close", watch_close, METH_NOARGS, CORE_DOC_Watch_close},
    {"__enter__", watch_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_FAST(watch_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Watch},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_repr, (void *)watch_repr},
    {Py_tp_traverse, (void *)watch_traverse},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)watch_next},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec core_watch_spec = {
    .name = "penstock._core.Watch",
    .basicsize = sizeof(struct core_watch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
