/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: a store: opening, closing while others still use it, and the operations on one key. */
#include "core.h"
#include "docs.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SCRATCH_BYTES = 32 << 10, /* a value of unknown size is read here first */
    GET_TRIES_MAX = 8,        /* while others write it larger and larger */
    REST_TRIES_MAX = 4,       /* for what is left behind an offset, while others write it */
    WAIT_SLICE_MS = 500,      /* how long a wait goes without looking for signals */
};

static struct core_store *store_of(PyObject *self)
{
    return (struct core_store *)self;
}

/* ---- the handle ---- */

struct penstock *core_store_use(struct core_store *store)
{
    core_trace(); /* it may run Python, and the store be closed by that */
    if (store->closed || !store->handle) {
        PyErr_SetString(core_classes.Invalid, "the store is closed");
        return NULL;
    }
    store->users++;
    return store->handle;
}

static void end_handle(struct core_store *store)
{
    struct penstock *handle = store->handle;

    core_assert(store->users == 0);
    store->handle = NULL;
    Py_BEGIN_ALLOW_THREADS;
    penstock_close(handle);
    Py_END_ALLOW_THREADS;
}

void core_store_leave(struct core_store *store)
{
    core_assert(store->users > 0);
    if (--store->users || !store->closed)
        return;
    end_handle(store);
}

int core_run(struct core_store *store, struct penstock_op *op)
{
    struct penstock *handle = store->handle;
    int r;

    core_assert(store->users > 0 && handle);
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_batch(handle, op, 1);
    Py_END_ALLOW_THREADS;
    if (r < 0)
        op->result = r;
    return op->result;
}

static PyObject *store_close(PyObject *self, PyObject *unused)
{
    struct core_store *store = store_of(self);

    (void)unused;
    if (!store->closed) {
        store->closed = true;
        if (store->users == 0)
            end_handle(store);
    }
    Py_RETURN_NONE;
}

static bool never_opened(const struct core_store *store)
{
    if (store->handle || store->closed)
        PyErr_SetString(core_classes.Invalid, "the store is open already");
    return !store->handle && !store->closed;
}

static int store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"url", "secret_file", "timeout", "connect_timeout", NULL};
    struct penstock_options options = {.size = sizeof(options)};
    struct core_store *store = store_of(self);
    PyObject *secret = NULL, *timeout = NULL, *connect = NULL;
    struct penstock *handle = NULL;
    uint64_t timeout_ms = 10000, connect_ms = 5000;
    const char *url = "mem:";
    int r;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|sO$OO", names, &url, &secret, &timeout, &connect))
        return -1;
    if ((timeout && core_seconds(timeout, "timeout", &timeout_ms) < 0) ||
        (connect && core_seconds(connect, "connect_timeout", &connect_ms) < 0))
        return -1;
    if (core_absent(secret))
        secret = NULL;
    else if (!PyUnicode_FSConverter(secret, &secret))
        return -1;
    if (!never_opened(store)) {
        Py_XDECREF(secret);
        return -1;
    }
    options.secret_file = secret ? PyBytes_AsString(secret) : NULL;
    options.timeout_ms = timeout_ms ? (uint32_t)timeout_ms : 1;
    options.connect_ms = connect_ms ? (uint32_t)connect_ms : 1;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_open(url, &options, &handle);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(secret);
    if (r) {
        core_raise(r, NULL);
        return -1;
    }
    if (never_opened(store)) {
        store->handle = handle;
        return 0;
    }
    Py_BEGIN_ALLOW_THREADS; /* another thread was faster */
    penstock_close(handle);
    Py_END_ALLOW_THREADS;
    return -1;
}

static void store_dealloc(PyObject *self)
{
    struct core_store *store = store_of(self);
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (store->handle && store->users == 0)
        end_handle(store);
    PyMem_Free(store->scratch);
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyObject *store_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(store_of(self)->closed);
}

static PyObject *store_lane(PyObject *self, void *unused)
{
    struct penstock *handle = core_store_use(store_of(self));
    const char *lane;

    (void)unused;
    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    lane = penstock_lane(handle);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return PyUnicode_FromString(lane);
}

static PyObject *store_copies(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(store_of(self)->copies);
}

/* ---- put ---- */

enum { PUT_KEY, PUT_VALUE, PUT_OPTIONS };
static struct core_call put_call = {
    "put",
    2,
    2,
    {"key", "value", "if_absent", "if_generation", "checksum", "depth", "attrs", "ttl", "durable"},
    {NULL}};

int core_put_options(PyObject *const args[CORE_PUT_OPTIONS], struct penstock_op *op, Py_buffer *attrs)
{
    bool if_absent, checksum, durable;

    if (core_flag(args[CORE_IF_ABSENT], &if_absent) < 0 || core_flag(args[CORE_CHECKSUM], &checksum) < 0 ||
        core_flag(args[CORE_DURABLE], &durable) < 0 || core_depth(args[CORE_DEPTH], &op->depth) < 0)
        return -1;
    op->flags = (if_absent ? PENSTOCK_IF_ABSENT : 0u) | (checksum ? PENSTOCK_CHECKSUM : 0u) |
                (durable ? PENSTOCK_DURABLE : 0u);
    if (!core_absent(args[CORE_IF_GENERATION])) {
        if (if_absent) {
            PyErr_SetString(PyExc_ValueError, "if_absent and if_generation exclude each other");
            return -1;
        }
        if (core_number(args[CORE_IF_GENERATION], "if_generation", UINT64_MAX, &op->if_generation) < 0)
            return -1;
        op->flags |= PENSTOCK_IF_GENERATION;
    }
    if (!core_absent(args[CORE_TTL])) {
        if (core_seconds(args[CORE_TTL], "ttl", &op->ttl_ms) < 0)
            return -1;
        op->flags |= PENSTOCK_TTL;
        op->ttl_ms += op->ttl_ms == 0; /* which would be no end at all */
    }
    if (core_absent(args[CORE_ATTRS]))
        return 0;
    if (!PyObject_CheckBuffer(args[CORE_ATTRS]))
        return core_type_error("attrs", "bytes-like", args[CORE_ATTRS]);
    if (PyObject_GetBuffer(args[CORE_ATTRS], attrs, PyBUF_SIMPLE) < 0)
        return -1;
    if (attrs->len > PENSTOCK_ATTR_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "attrs has %zd bytes, more than %d", attrs->len,
                     PENSTOCK_ATTR_BYTES_MAX);
        return -1;
    }
    op->attrs = attrs->buf;
    op->attr_bytes = (uint16_t)attrs->len;
    return 0;
}

static PyObject *store_put(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = store_of(self);
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct penstock_op op = {0};
    Py_buffer key, attrs = {0};
    struct core_data value;

    if (core_args(&put_call, args, count, keywords, given) < 0 ||
        core_borrow_key(given[PUT_KEY], "key", &key) < 0)
        return NULL;
    if (core_borrow_data(given[PUT_VALUE], "value", false, &value) == 0) {
        penstock_prep(&op, PENSTOCK_PUT, key.buf, (size_t)key.len);
        if (core_set_data(&op, &value, false) == 0 &&
            core_put_options(given + PUT_OPTIONS, &op, &attrs) == 0 && core_store_use(store)) {
            out = core_run(store, &op) == 0 ? PyLong_FromUnsignedLongLong(op.generation) : core_raise_op(&op);
            store->copies = out ? penstock_copies(&op) : store->copies;
            core_store_leave(store);
        }
        core_return_data(&value);
        core_return(&attrs);
    }
    core_return(&key);
    return out;
}

/* ---- get ---- */

/* What of a value is asked for. */
struct wanted {
    bool range, waits, one_generation;
    int64_t offset;
    uint64_t bytes;
    bool to_end; /* the length is what is left behind the offset */
    uint64_t wait_ms, generation;
};

static int read_wanted(PyObject *offset, PyObject *length, PyObject *wait, PyObject *generation,
                       struct wanted *out)
{
    *out = (struct wanted){.range = !core_absent(offset) || !core_absent(length), .to_end = true};
    if (!core_absent(offset) && core_signed(offset, "offset", &out->offset) < 0)
        return -1;
    if (!core_absent(length)) {
        if (core_number(length, "length", PY_SSIZE_T_MAX, &out->bytes) < 0)
            return -1;
        out->to_end = false;
    }
    out->one_generation = !core_absent(generation);
    if (out->one_generation && core_number(generation, "if_generation", UINT64_MAX, &out->generation) < 0)
        return -1;
    out->waits = !core_absent(wait);
    return out->waits ? core_seconds(wait, "wait", &out->wait_ms) : 0;
}

static void prepare(const struct wanted *wanted, const Py_buffer *key, struct penstock_op *op)
{
    *op = (struct penstock_op){0};
    penstock_prep(op, PENSTOCK_GET, key->buf, (size_t)key->len);
    op->flags = wanted->one_generation ? PENSTOCK_IF_GENERATION : 0;
    op->if_generation = wanted->generation;
    if (!wanted->range)
        return;
    op->flags |= PENSTOCK_RANGE | (wanted->offset < 0 ? PENSTOCK_FROM_END : 0);
    op->offset = wanted->offset < 0 ? -(uint64_t)wanted->offset : (uint64_t)wanted->offset;
    op->bytes = wanted->bytes;
}

/* A get that may wait for its key, in slices, so that an interrupt is seen. Return: the result, or 0 with an
 * exception. */
static int run_waiting(struct core_store *store, struct penstock_op *op, uint64_t wait_ms)
{
    int r = PENSTOCK_MISS;

    for (uint64_t waited = 0; (r == PENSTOCK_MISS || r == PENSTOCK_LOST) && waited < wait_ms;
         waited += WAIT_SLICE_MS) {
        op->flags |= PENSTOCK_WAIT;
        op->wait_ms = (uint32_t)(wait_ms - waited < WAIT_SLICE_MS ? wait_ms - waited : WAIT_SLICE_MS);
        r = core_run(store, op);
        if (r != 0 && PyErr_CheckSignals() < 0)
            return 0;
    }
    return wait_ms ? r : core_run(store, op);
}

/* Waits for the key where that is wanted, and says how long a range from the end is. */
static int begin_get(struct core_store *store, const Py_buffer *key, struct wanted *wanted)
{
    struct penstock_op op = {0};

    if (wanted->waits) {
        struct wanted nothing = {.range = true};

        prepare(&nothing, key, &op);
        if (run_waiting(store, &op, wanted->wait_ms) != 0)
            core_raise_op(&op);
        if (PyErr_Occurred())
            return -1;
    }
    if (wanted->range && wanted->to_end && wanted->offset < 0)
        wanted->bytes = -(uint64_t)wanted->offset;
    return 0;
}

PyObject *core_bytes_of(struct core_store *store, const struct penstock_op *op, PyObject *object)
{
    core_assert(op->result == 0 && op->value_bytes <= op->bytes);
    store->guess_bytes = op->value_bytes <= CORE_GUESS_BYTES_MAX ? op->value_bytes : 0;
    if (object && op->value_bytes == op->bytes)
        return Py_NewRef(object);
    return PyBytes_FromStringAndSize(op->data, (Py_ssize_t)op->value_bytes);
}

PyObject *core_room(uint64_t value_bytes, int tries)
{
    uint64_t room = value_bytes << (tries < 8 ? tries : 8);

    if (value_bytes <= PY_SSIZE_T_MAX >> 8)
        return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    PyErr_NoMemory();
    return NULL;
}

/* Does the get @op into a new object of the op's size. Return: it, NULL where it failed. */
static PyObject *read_into(struct core_store *store, struct penstock_op *op, PyObject *object)
{
    if (!object)
        return NULL;
    op->data = PyBytes_AsString(object);
    op->bytes = (uint64_t)PyBytes_Size(object);
    if (core_run(store, op) == 0)
        return object;
    Py_DECREF(object);
    return NULL;
}

/* The first try has as much room as the last value took, the next ones as much as this one took then. */
static PyObject *read_whole(struct core_store *store, const Py_buffer *key, const struct wanted *wanted)
{
    uint8_t scratch[SCRATCH_BYTES];
    struct penstock_op op;
    PyObject *object = NULL, *out;

    prepare(wanted, key, &op);
    op.data = scratch;
    op.bytes = sizeof(scratch);
    if (store->guess_bytes <= SCRATCH_BYTES)
        core_run(store, &op);
    else
        object = read_into(store, &op, core_room(store->guess_bytes, 0));
    for (int i = 0; i < GET_TRIES_MAX && op.result == -ENOBUFS && !PyErr_Occurred(); i++)
        object = read_into(store, &op, core_room(op.value_bytes, i));
    if (PyErr_Occurred())
        return NULL;
    out = op.result == 0 ? core_bytes_of(store, &op, object) : core_raise_op(&op);
    Py_XDECREF(object);
    return out;
}

/* The whole value, cut: the way that no writer can make longer and longer. */
static PyObject *read_whole_cut(struct core_store *store, const Py_buffer *key, const struct wanted *wanted)
{
    const struct wanted all = {.one_generation = wanted->one_generation, .generation = wanted->generation};
    PyObject *whole = read_whole(store, key, &all), *out = NULL;
    Py_ssize_t bytes = whole ? PyBytes_Size(whole) : 0;

    if (whole && wanted->offset <= bytes)
        out = PyBytes_FromStringAndSize(PyBytes_AsString(whole) + wanted->offset,
                                        bytes - (Py_ssize_t)wanted->offset);
    else if (whole)
        core_raise(-ERANGE, key);
    Py_XDECREF(whole);
    return out;
}

/* What is left behind the offset. Others may write the key between the question for its size and the read: so
 * what was read has to end with the value that it is of. */
static PyObject *read_rest(struct core_store *store, const Py_buffer *key, struct wanted *wanted)
{
    uint64_t offset = (uint64_t)wanted->offset;

    core_assert(wanted->to_end && wanted->offset >= 0);
    for (int i = 0; i < REST_TRIES_MAX; i++) {
        struct penstock_op op = {0};
        uint64_t value_bytes;
        PyObject *out;

        penstock_prep(&op, PENSTOCK_STAT_KEY, key->buf, (size_t)key->len);
        if (core_run(store, &op) != 0)
            return core_raise_op(&op);
        value_bytes = op.value_bytes;
        /* Beyond the end: nothing is left, and the range itself is refused. */
        wanted->bytes = value_bytes > offset ? value_bytes - offset : 0;
        prepare(wanted, key, &op);
        out = read_into(store, &op, core_room(wanted->bytes, 0));
        if (PyErr_Occurred() || (out && op.value_bytes == offset + wanted->bytes))
            return out;
        Py_XDECREF(out);
        if (!out && (op.result != -ERANGE || value_bytes < offset))
            return core_raise_op(&op);
    }
    return read_whole_cut(store, key, wanted);
}

enum { GET_KEY, GET_DEFAULT, GET_OFFSET, GET_LENGTH, GET_WAIT, GET_GENERATION };
static struct core_call get_call = {
    "get", 1, 2, {"key", "default", "offset", "length", "wait", "if_generation"}, {NULL}};

static PyObject *get_wanted(struct core_store *store, const Py_buffer *key, struct wanted *wanted)
{
    struct penstock_op op;
    PyObject *out;

    if (begin_get(store, key, wanted) < 0)
        return NULL;
    if (!wanted->range)
        return read_whole(store, key, wanted);
    if (wanted->to_end && wanted->offset >= 0)
        return read_rest(store, key, wanted);
    prepare(wanted, key, &op);
    out = read_into(store, &op, core_room(wanted->bytes, 0));
    return out || PyErr_Occurred() ? out : core_raise_op(&op);
}

static PyObject *store_get(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = store_of(self);
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct wanted wanted;
    Py_buffer key;

    if (core_args(&get_call, args, count, keywords, given) < 0 ||
        read_wanted(given[GET_OFFSET], given[GET_LENGTH], given[GET_WAIT], given[GET_GENERATION], &wanted) <
            0 ||
        core_borrow_key(given[GET_KEY], "key", &key) < 0)
        return NULL;
    if (core_store_use(store)) {
        out = get_wanted(store, &key, &wanted);
        core_store_leave(store);
    }
    core_return(&key);
    if (out || !given[GET_DEFAULT] || !PyErr_ExceptionMatches(core_classes.NotFound))
        return out;
    PyErr_Clear();
    return Py_NewRef(given[GET_DEFAULT]);
}

enum { INTO_KEY, INTO_BUFFER, INTO_OFFSET, INTO_LENGTH, INTO_WAIT, INTO_GENERATION };
static struct core_call into_call = {
    "get_into", 2, 2, {"key", "buffer", "offset", "length", "wait", "if_generation"}, {NULL}};

/* The value, or with an offset as much of it as the buffer holds, or as is asked for. */
static PyObject *get_into(struct core_store *store, const Py_buffer *key, struct wanted *wanted,
                          struct core_data *buffer)
{
    struct penstock_op op;

    if (!wanted->to_end && wanted->bytes > buffer->bytes)
        return PyErr_Format(core_classes.Invalid, "buffer has %llu bytes, fewer than length",
                            (unsigned long long)buffer->bytes);
    if (!wanted->to_end)
        core_cut_data(buffer, wanted->bytes);
    wanted->to_end = false;
    if (begin_get(store, key, wanted) < 0)
        return NULL;
    prepare(wanted, key, &op);
    if (core_set_data(&op, buffer, true) < 0)
        return NULL;
    if (core_run(store, &op) != 0)
        return core_raise_op(&op);
    core_spread_data(buffer, &op);
    return PyLong_FromUnsignedLongLong(wanted->range ? op.bytes : op.value_bytes);
}

static PyObject *store_get_into(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = store_of(self);
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct core_data buffer;
    struct wanted wanted;
    Py_buffer key;

    if (core_args(&into_call, args, count, keywords, given) < 0 ||
        read_wanted(given[INTO_OFFSET], given[INTO_LENGTH], given[INTO_WAIT], given[INTO_GENERATION],
                    &wanted) < 0 ||
        core_borrow_key(given[INTO_KEY], "key", &key) < 0)
        return NULL;
    if (core_borrow_data(given[INTO_BUFFER], "buffer", true, &buffer) == 0) {
        if (core_store_use(store)) {
            out = get_into(store, &key, &wanted, &buffer);
            core_store_leave(store);
        }
        core_return_data(&buffer);
    }
    core_return(&key);
    return out;
}

/* ---- the other operations on a key ---- */

/* Does @op, of which code, flags and conditions are filled in, on @key. Return: 0, PENSTOCK_MISS, or -1 with
 * an exception. */
static int keyed(PyObject *self, PyObject *key, struct penstock_op *op)
{
    struct core_store *store = store_of(self);
    Py_buffer borrowed;
    int r = -1;

    if (core_borrow_key(key, "key", &borrowed) < 0)
        return -1;
    if (core_store_use(store)) {
        uint32_t flags = op->flags;
        uint8_t code = op->code;

        penstock_prep(op, (enum penstock_code)code, borrowed.buf, (size_t)borrowed.len);
        op->flags = flags;
        r = core_run(store, op);
        if (r != 0 && r != PENSTOCK_MISS) {
            core_raise_op(op);
            r = -1;
        }
        core_store_leave(store);
    }
    core_return(&borrowed);
    return r;
}

static int store_contains(PyObject *self, PyObject *key)
{
    struct penstock_op op = {.code = PENSTOCK_STAT_KEY};
    int r = keyed(self, key, &op);

    return r < 0 ? -1 : r == 0;
}

static PyObject *store_exists(PyObject *self, PyObject *key)
{
    int r = store_contains(self, key);

    return r < 0 ? NULL : PyBool_FromLong(r);
}

static struct core_call delete_call = {"delete", 1, 1, {"key", "if_generation"}, {NULL}};

static PyObject *store_delete(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct penstock_op op = {.code = PENSTOCK_DELETE};
    PyObject *given[CORE_ARGS_MAX];
    int r;

    if (core_args(&delete_call, args, count, keywords, given) < 0)
        return NULL;
    if (!core_absent(given[1])) {
        if (core_number(given[1], "if_generation", UINT64_MAX, &op.if_generation) < 0)
            return NULL;
        op.flags = PENSTOCK_IF_GENERATION;
    }
    r = keyed(self, given[0], &op);
    return r < 0 ? NULL : PyBool_FromLong(r == 0);
}

static PyObject *pin_or_not(PyObject *self, PyObject *key, struct penstock_op *op)
{
    int r = keyed(self, key, op);
    Py_buffer borrowed;

    if (r == 0)
        Py_RETURN_NONE;
    if (r > 0 && core_borrow_key(key, "key", &borrowed) == 0) {
        core_raise(r, &borrowed);
        core_return(&borrowed);
    }
    return NULL;
}

static struct core_call pin_call = {"pin", 1, 2, {"key", "seconds"}, {NULL}};

static PyObject *store_pin(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct penstock_op op = {.code = PENSTOCK_PIN};
    PyObject *given[CORE_ARGS_MAX];

    if (core_args(&pin_call, args, count, keywords, given) < 0 ||
        (!core_absent(given[1]) && core_seconds(given[1], "seconds", &op.pin_ms) < 0))
        return NULL;
    return pin_or_not(self, given[0], &op);
}

static PyObject *store_unpin(PyObject *self, PyObject *key)
{
    struct penstock_op op = {.code = PENSTOCK_UNPIN};

    return pin_or_not(self, key, &op);
}

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"put", CORE_FAST(store_put), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_put},
    {"get", CORE_FAST(store_get), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_get},
    {"get_into", CORE_FAST(store_get_into), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_get_into},
    {"exists", store_exists, METH_O, CORE_DOC_Store_exists},
    {"delete", CORE_FAST(store_delete), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_delete},
    {"pin", CORE_FAST(store_pin), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_pin},
    {"unpin", store_unpin, METH_O, CORE_DOC_Store_unpin},
    {"view", core_view_open, METH_O, CORE_DOC_Store_view},
    {"put_many", CORE_FAST(core_put_many), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_put_many},
    {"get_many", CORE_FAST(core_get_many), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_get_many},
    {"get_into_many", CORE_FAST(core_get_into_many), METH_FASTCALL | METH_KEYWORDS,
     CORE_DOC_Store_get_into_many},
    {"move_many", CORE_FAST(core_move_many), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_move_many},
    {"exists_many", core_exists_many, METH_O, CORE_DOC_Store_exists_many},
    {"delete_many", core_delete_many, METH_O, CORE_DOC_Store_delete_many},
    {"head", core_head, METH_O, CORE_DOC_Store_head},
    {"reserve", CORE_FAST(core_reserve), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_reserve},
    {"reserve_pairs", CORE_FAST(core_reserve_pairs), METH_FASTCALL, CORE_DOC_Store_reserve_pairs},
    {"commit_many", CORE_FAST(core_commit_many), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_commit_many},
    {"stream", CORE_FAST(core_stream_open), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_stream},
    {"list", CORE_FAST(core_list_open), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_list},
    {"watch", CORE_FAST(core_watch_open), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_watch},
    {"queue", core_queue_open, METH_NOARGS, CORE_DOC_Store_queue},
    {"commit_ops", CORE_FAST(core_commit), METH_FASTCALL, CORE_DOC_Store_commit_ops},
    {"delete_prefix", core_delete_prefix, METH_O, CORE_DOC_Store_delete_prefix},
    {"delete_range", CORE_FAST(core_delete_range), METH_FASTCALL | METH_KEYWORDS,
     CORE_DOC_Store_delete_range},
    {"clear", core_clear, METH_NOARGS, CORE_DOC_Store_clear},
    {"figures", core_figures, METH_NOARGS, CORE_DOC_Store_figures},
    {"flush", core_flush, METH_NOARGS, CORE_DOC_Store_flush},
    {"ping", core_ping, METH_NOARGS, CORE_DOC_Store_ping},
    {"report_blocks", CORE_FAST(core_report_blocks), METH_FASTCALL | METH_KEYWORDS,
     CORE_DOC_Store_report_blocks},
    {"revoke_blocks", CORE_FAST(core_revoke_blocks), METH_FASTCALL | METH_KEYWORDS,
     CORE_DOC_Store_revoke_blocks},
    {"match_blocks", CORE_FAST(core_match_blocks), METH_FASTCALL | METH_KEYWORDS,
     CORE_DOC_Store_match_blocks},
    {"block_hits", core_block_hits, METH_O, CORE_DOC_Store_block_hits},
    {"nodes", core_nodes, METH_NOARGS, CORE_DOC_Store_nodes},
    {"drain_id", CORE_FAST(core_drain_id), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Store_drain_id},
    {"forgive", core_forgive, METH_NOARGS, CORE_DOC_Store_forgive},
    {"register", core_register, METH_O, CORE_DOC_Store_register},
    {"deregister", core_deregister, METH_O, CORE_DOC_Store_deregister},
    {"close", store_close, METH_NOARGS, CORE_DOC_Store_close},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"closed", store_closed, NULL, CORE_DOC_Store_closed, NULL},
    {"lane", store_lane, NULL, CORE_DOC_Store_lane, NULL},
    {"copies", store_copies, NULL, CORE_DOC_Store_copies, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Store},
    {Py_tp_init, (void *)store_init},
    {Py_tp_dealloc, (void *)store_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_contains, (void *)store_contains},
    {0, NULL},
};

PyType_Spec core_store_spec = {
    .name = "penstock._core.Store",
    .basicsize = sizeof(struct core_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
