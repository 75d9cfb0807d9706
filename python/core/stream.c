/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c: a value whose length nobody knows yet, written bit by bit and visible with the commit. One thread
 * at a time; a stream that is left without a commit is aborted.
 */
#include "core.h"
#include "docs.h"

struct core_stream {
    PyObject ob_base;
    struct core_store *store; /* used until the end; then NULL */
    struct penstock_stream *stream;
    Py_buffer key;
    bool running; /* a thread is in the library */
};

static struct core_stream *stream_of(PyObject *self)
{
    return (struct core_stream *)self;
}

/* The library's stream has ended. */
static void leave(struct core_stream *stream)
{
    struct core_store *store = stream->store;

    core_assert(store && !stream->running);
    stream->store = NULL;
    stream->stream = NULL;
    core_return(&stream->key);
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

static void abort_stream(struct core_stream *stream)
{
    struct penstock_stream *underneath = stream->stream;

    if (!stream->store)
        return;
    stream->running = true;
    Py_BEGIN_ALLOW_THREADS;
    penstock_stream_abort(underneath);
    Py_END_ALLOW_THREADS;
    stream->running = false;
    leave(stream);
}

static bool usable(const struct core_stream *stream)
{
    if (!stream->store)
        PyErr_SetString(PyExc_ValueError, "the stream has ended");
    else if (stream->running)
        PyErr_SetString(PyExc_ValueError, "another thread is using the stream");
    return stream->store && !stream->running;
}

static struct core_call stream_call = {
    "stream",
    1,
    1,
    {"key", "if_absent", "if_generation", "checksum", "depth", "attrs", "ttl", "durable"},
    {NULL}};

/* Opens what is under @stream, which keeps the key. */
static int open_under(struct core_stream *stream, PyObject *self, const struct penstock_op *op)
{
    struct core_store *store = (struct core_store *)self;
    struct penstock *handle = core_store_use(store);
    struct penstock_op outcome = *op;

    if (!handle)
        return -1;
    Py_BEGIN_ALLOW_THREADS;
    outcome.result = penstock_stream_open(handle, op, &stream->stream);
    Py_END_ALLOW_THREADS;
    if (outcome.result != 0) {
        core_raise_op(&outcome);
        core_store_leave(store);
        return -1;
    }
    stream->store = (struct core_store *)Py_NewRef(self);
    return 0;
}

PyObject *core_stream_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_stream *stream;
    PyObject *given[CORE_ARGS_MAX];
    struct penstock_op op = {0};
    Py_buffer attrs = {0};
    int r = -1;

    if (core_args(&stream_call, args, count, keywords, given) < 0)
        return NULL;
    stream = stream_of(PyType_GenericAlloc(core_classes.Stream, 0));
    if (!stream)
        return NULL;
    if (core_borrow_key(given[0], "key", &stream->key) == 0) {
        penstock_prep(&op, PENSTOCK_PUT, stream->key.buf, (size_t)stream->key.len);
        if (core_put_options(given + 1, &op, &attrs) == 0)
            r = open_under(stream, self, &op);
        core_return(&attrs);
        if (r < 0)
            core_return(&stream->key);
    }
    if (r < 0)
        Py_CLEAR(stream);
    return (PyObject *)stream;
}

static PyObject *stream_write(PyObject *self, PyObject *arg)
{
    struct core_stream *stream = stream_of(self);
    struct core_data data;
    uint64_t bytes;
    int r = 0;

    if (core_borrow_data(arg, "data", false, &data) < 0)
        return NULL;
    if (!usable(stream)) {
        core_return_data(&data);
        return NULL;
    }
    bytes = data.bytes;
    stream->running = true;
    Py_BEGIN_ALLOW_THREADS;
    if (!data.pieces)
        r = penstock_stream_write(stream->stream, data.whole.buf, bytes);
    for (uint32_t i = 0; data.pieces && r == 0 && i < data.count; i++)
        r = penstock_stream_write(stream->stream, data.iov[i].iov_base, data.iov[i].iov_len);
    Py_END_ALLOW_THREADS;
    stream->running = false;
    core_return_data(&data);
    return r == 0 ? PyLong_FromUnsignedLongLong(bytes) : core_raise(r, &stream->key);
}

static PyObject *stream_commit(PyObject *self, PyObject *unused)
{
    struct core_stream *stream = stream_of(self);
    struct penstock_op op = {0};
    PyObject *out = NULL;

    (void)unused;
    if (!usable(stream))
        return NULL;
    penstock_prep(&op, PENSTOCK_PUT, stream->key.buf, (size_t)stream->key.len);
    stream->running = true;
    Py_BEGIN_ALLOW_THREADS;
    op.result = penstock_stream_commit(stream->stream, &op.generation);
    Py_END_ALLOW_THREADS;
    stream->running = false;
    out = op.result == 0 ? PyLong_FromUnsignedLongLong(op.generation) : core_raise_op(&op);
    leave(stream);
    return out;
}

static PyObject *stream_abort(PyObject *self, PyObject *unused)
{
    struct core_stream *stream = stream_of(self);

    (void)unused;
    if (stream->store && !usable(stream))
        return NULL;
    abort_stream(stream);
    Py_RETURN_NONE;
}

static PyObject *stream_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return usable(stream_of(self)) ? Py_NewRef(self) : NULL;
}

/* Commits, unless the block has ended it, or ends with an exception. */
static PyObject *stream_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *generation;

    if (count < 1 || args[0] != Py_None || !stream_of(self)->store)
        return stream_abort(self, NULL);
    generation = stream_commit(self, NULL);
    if (!generation)
        return NULL;
    Py_DECREF(generation);
    Py_RETURN_NONE;
}

static PyObject *stream_repr(PyObject *self)
{
    return core_repr("Stream", stream_of(self)->store, &stream_of(self)->key);
}

static int stream_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)stream_of(self)->store);
    return 0;
}

static void stream_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    abort_stream(stream_of(self));
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyMethodDef methods[] = {
    {"write", stream_write, METH_O, CORE_DOC_Stream_write},
    {"commit", stream_commit, METH_NOARGS, CORE_DOC_Stream_commit},
    {"abort", stream_abort, METH_NOARGS, CORE_DOC_Stream_abort},
    {"__enter__", stream_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_FAST(stream_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Stream},      {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_repr, (void *)stream_repr}, {Py_tp_traverse, (void *)stream_traverse},
    {Py_tp_methods, methods},          {0, NULL},
};

PyType_Spec core_stream_spec = {
    .name = "penstock._core.Stream",
    .basicsize = sizeof(struct core_stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
