/* SPDX-License-Identifier: Apache-2.0 */
/* args.c: arguments of fast calls, keys, and the memory of values, borrowed for as long as a call runs. */
#include "core.h"

enum { PIECES_MAX = 1024 /* of an operation, as the library takes them */ };

#include <math.h>

/* ---- arguments ---- */

/* The place of the parameter @keyword, or -1. */
static int place_of(struct core_call *call, PyObject *keyword)
{
    for (int i = 0; i < CORE_ARGS_MAX && call->names[i]; i++) {
        if (!call->interned[i])
            call->interned[i] = PyUnicode_InternFromString(call->names[i]);
        if (call->interned[i] == keyword)
            return i;
    }
    for (int i = 0; i < CORE_ARGS_MAX && call->names[i]; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword, call->names[i]) == 0)
            return i;
    }
    return -1;
}

static int take_keywords(struct core_call *call, PyObject *const *values, PyObject *keywords, PyObject **out)
{
    Py_ssize_t count = PyTuple_Size(keywords);

    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        int place = place_of(call, keyword);

        if (place < 0 || out[place]) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", call->name,
                         place < 0 ? "an unexpected keyword" : "multiple values for", keyword);
            return -1;
        }
        out[place] = values[i];
    }
    return 0;
}

int core_args(struct core_call *call, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
              PyObject **out)
{
    core_assert(call->required <= call->positional && call->positional <= CORE_ARGS_MAX);
    if (count > call->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, %zd were given", call->name,
                     call->positional, count);
        return -1;
    }
    for (int i = 0; i < CORE_ARGS_MAX && call->names[i]; i++)
        out[i] = i < count ? args[i] : NULL;
    if (keywords && take_keywords(call, args + count, keywords, out) < 0)
        return -1;
    for (int i = 0; i < call->required; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() misses its argument '%s'", call->name, call->names[i]);
            return -1;
        }
    }
    return 0;
}

int core_type_error(const char *name, const char *wanted, PyObject *arg)
{
    PyObject *type = PyType_GetName(Py_TYPE(arg));

    if (type)
        PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", name, wanted, type);
    Py_XDECREF(type);
    return -1;
}

int core_flag(PyObject *arg, bool *out)
{
    int truth = core_absent(arg) ? 0 : PyObject_IsTrue(arg);

    *out = truth > 0;
    return truth < 0 ? -1 : 0;
}

int core_signed(PyObject *arg, const char *name, int64_t *out)
{
    PyObject *number = PyIndex_Check(arg) ? PyNumber_Index(arg) : NULL;
    int overflow = 0;

    if (!number)
        return PyErr_Occurred() ? -1 : core_type_error(name, "an int", arg);
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow)
        PyErr_Format(PyExc_ValueError, "%s does not fit into 64 bits", name);
    return overflow ? -1 : 0;
}

int core_number(PyObject *arg, const char *name, uint64_t max, uint64_t *out)
{
    PyObject *number = PyIndex_Check(arg) ? PyNumber_Index(arg) : NULL;
    unsigned long long value;

    if (!number)
        return PyErr_Occurred() ? -1 : core_type_error(name, "an int", arg);
    value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred())
        PyErr_Clear(); /* negative, or more than 64 bits: said below */
    else if (value <= max) {
        *out = value;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s must be between 0 and %llu", name, (unsigned long long)max);
    return -1;
}

int core_seconds(PyObject *arg, const char *name, uint64_t *out_ms)
{
    double seconds = PyFloat_AsDouble(arg);

    if (seconds == -1.0 && PyErr_Occurred())
        return PyErr_ExceptionMatches(PyExc_TypeError) ? core_type_error(name, "a number of seconds", arg)
                                                       : -1;
    if (!(seconds >= 0 && seconds <= 86400)) {
        PyErr_Format(PyExc_ValueError, "%s must be between 0 and 86400 seconds", name);
        return -1;
    }
    *out_ms = (uint64_t)ceil(seconds * 1000);
    return 0;
}

int core_depth(PyObject *arg, uint16_t *out)
{
    uint64_t depth = PENSTOCK_DEPTH_NONE;
    int r = core_absent(arg) ? 0 : core_number(arg, "depth", PENSTOCK_DEPTH_NONE - 1, &depth);

    *out = (uint16_t)depth;
    return r;
}

/* ---- keys ---- */

static void borrow_raw(Py_buffer *out, PyObject *owner, const void *data, Py_ssize_t bytes)
{
    out->obj = Py_NewRef(owner);
    out->buf = (void *)(uintptr_t)data;
    out->len = bytes;
    out->itemsize = CORE_PLAIN;
}

static int borrow_bytes(PyObject *arg, Py_buffer *out)
{
    char *data;
    Py_ssize_t bytes;

    if (PyBytes_AsStringAndSize(arg, &data, &bytes) < 0)
        return -1;
    borrow_raw(out, arg, data, bytes);
    return 0;
}

/* Names that are no UTF-8 are spelled in text as the file system's are, with surrogates. */
static int borrow_escaped(PyObject *arg, Py_buffer *out)
{
    PyObject *bytes;
    int r;

    PyErr_Clear();
    bytes = PyUnicode_AsEncodedString(arg, "utf-8", "surrogateescape");
    r = bytes ? borrow_bytes(bytes, out) : -1;
    Py_XDECREF(bytes);
    return r;
}

int core_borrow_key(PyObject *arg, const char *name, Py_buffer *out)
{
    Py_ssize_t bytes;
    const char *text;

    if (PyUnicode_Check(arg)) {
        text = PyUnicode_AsUTF8AndSize(arg, &bytes);
        if (!text)
            return borrow_escaped(arg, out);
        borrow_raw(out, arg, text, bytes);
        return 0;
    }
    if (PyBytes_Check(arg))
        return borrow_bytes(arg, out);
    if (!PyObject_CheckBuffer(arg))
        return core_type_error(name, "str or bytes-like", arg);
    return PyObject_GetBuffer(arg, out, PyBUF_SIMPLE);
}

int core_borrow_prefix(PyObject *arg, const char *name, Py_buffer *out)
{
    *out = (Py_buffer){0};
    return core_absent(arg) ? 0 : core_borrow_key(arg, name, out);
}

/* ---- values ---- */

/* Whatever an exporter raises of the kind, the caller reads which argument it was about. */
static int explain_buffer(const char *name, bool writable)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL, *text;

    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
        return -1;
    PyErr_Fetch(&type, &value, &trace);
    text = value ? PyObject_Str(value) : PyUnicode_FromString("");
    if (text)
        PyErr_Format(PyExc_ValueError, "%s must be contiguous%s: %U", name, writable ? " and writable" : "",
                     text);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return -1;
}

static int borrow_address(PyObject *pair, const char *name, Py_buffer *out)
{
    uint64_t address = 0, bytes = 0;

    if (core_number(PyTuple_GetItem(pair, 0), name, UINTPTR_MAX, &address) < 0 ||
        core_number(PyTuple_GetItem(pair, 1), name, INT64_MAX, &bytes) < 0)
        return -1;
    if (!address && bytes) {
        PyErr_Format(PyExc_ValueError, "%s is a null address", name);
        return -1;
    }
    *out = (Py_buffer){.buf = (void *)(uintptr_t)address, .len = (Py_ssize_t)bytes};
    return 0;
}

static bool is_address(PyObject *arg)
{
    return PyTuple_Check(arg) && PyTuple_Size(arg) == 2 && PyLong_Check(PyTuple_GetItem(arg, 0)) &&
           PyLong_Check(PyTuple_GetItem(arg, 1));
}

static int borrow_piece(PyObject *arg, const char *name, bool writable, Py_buffer *out)
{
    if (!writable && PyBytes_Check(arg))
        return borrow_bytes(arg, out);
    if (is_address(arg))
        return borrow_address(arg, name, out);
    if (!PyObject_CheckBuffer(arg))
        return core_type_error(name, "bytes-like, (address, bytes) or a list of these", arg);
    if (PyObject_GetBuffer(arg, out, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return explain_buffer(name, writable);
    return 0;
}

/* Fills @out from a tuple, which may end half filled: core_return_data() gives back what was borrowed. */
static int borrow_pieces(PyObject *items, const char *name, bool writable, struct core_data *out)
{
    Py_ssize_t count = PyTuple_Size(items);
    int r = 0;

    if (count > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s has more than %d pieces", name, INT32_MAX);
        return -1;
    }
    out->pieces = PyMem_Calloc((size_t)count + 1, sizeof(*out->pieces));
    out->iov = PyMem_Calloc((size_t)count + 1, sizeof(*out->iov));
    if (!out->pieces || !out->iov) {
        PyErr_NoMemory();
        return -1;
    }
    for (; r == 0 && out->count < (uint32_t)count; out->count++) {
        Py_buffer *piece = &out->pieces[out->count];

        r = borrow_piece(PyTuple_GetItem(items, out->count), name, writable, piece);
        out->iov[out->count] = (struct iovec){piece->buf, (size_t)piece->len};
        out->bytes += (uint64_t)piece->len;
        if (r == 0 && out->bytes > INT64_MAX) {
            PyErr_Format(PyExc_ValueError, "%s has pieces of more than %lld bytes together", name,
                         (long long)INT64_MAX);
            r = -1;
        }
    }
    return r;
}

int core_borrow_data(PyObject *arg, const char *name, bool writable, struct core_data *out)
{
    int r;

    *out = (struct core_data){.pieces = NULL};
    if (!writable && PyBytes_Check(arg)) {
        r = borrow_bytes(arg, &out->whole);
        out->bytes = (uint64_t)out->whole.len;
        return r;
    }
    if ((PyList_Check(arg) || PyTuple_Check(arg)) && !is_address(arg)) {
        PyObject *items = core_items(arg, name);

        r = items ? borrow_pieces(items, name, writable, out) : -1;
        Py_XDECREF(items);
        if (r < 0)
            core_return_data(out);
        return r;
    }
    r = borrow_piece(arg, name, writable, &out->whole);
    out->bytes = r == 0 ? (uint64_t)out->whole.len : 0;
    return r;
}

void core_return_data(struct core_data *data)
{
    core_return(&data->whole);
    if (!data->pieces)
        return;
    for (uint32_t i = 0; i < data->count; i++)
        core_return(&data->pieces[i]);
    PyMem_Free(data->pieces);
    PyMem_Free(data->iov);
    PyMem_Free(data->joined);
    data->pieces = NULL;
    data->iov = NULL;
    data->joined = NULL;
}

void core_cut_data(struct core_data *data, uint64_t bytes)
{
    uint64_t at = 0;

    core_assert(bytes <= data->bytes);
    data->bytes = bytes;
    for (uint32_t i = 0; data->pieces && i < data->count; i++) {
        struct iovec *piece = &data->iov[i];

        piece->iov_len = piece->iov_len < bytes - at ? piece->iov_len : bytes - at;
        at += piece->iov_len;
    }
}

/* Return: 0, or -1 with MemoryError. */
static int join_pieces(struct core_data *data, bool reads)
{
    uint64_t at = 0;

    core_assert(!data->joined && data->pieces);
    data->joined = PyMem_Malloc(data->bytes + 1);
    if (!data->joined) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; !reads && i < data->count; i++) {
        if (data->iov[i].iov_len)
            memcpy(data->joined + at, data->iov[i].iov_base, data->iov[i].iov_len);
        at += data->iov[i].iov_len;
    }
    return 0;
}

int core_set_data(struct penstock_op *op, struct core_data *data, bool reads)
{
    op->bytes = data->bytes;
    if (data->count > PIECES_MAX && join_pieces(data, reads) < 0)
        return -1;
    op->data = data->joined ? data->joined : data->pieces ? NULL : data->whole.buf;
    op->iov = data->joined ? NULL : data->iov;
    op->iov_count = data->joined ? 0 : data->count;
    return 0;
}

void core_spread_data(const struct core_data *data, const struct penstock_op *op)
{
    uint64_t bytes = op->flags & PENSTOCK_RANGE ? op->bytes : op->value_bytes, at = 0;

    core_assert(op->result == 0 && bytes <= data->bytes);
    for (uint32_t i = 0; data->joined && at < bytes; i++) {
        size_t part = data->iov[i].iov_len < bytes - at ? data->iov[i].iov_len : (size_t)(bytes - at);

        if (part)
            memcpy(data->iov[i].iov_base, data->joined + at, part);
        at += part;
    }
}
