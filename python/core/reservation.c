/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reservation.c: memory for a key's next value, which nobody else sees until it is committed. Several threads
 * may write one at once; a reservation that is left without a commit is aborted.
 */
#include "core.h"
#include "docs.h"

#include <errno.h>

enum reservation_state {
    RESERVATION_NONE,
    RESERVATION_RESERVING,
    RESERVATION_OPEN,
    RESERVATION_ENDING,
    RESERVATION_ENDED
};

struct core_reservation {
    PyObject ob_base;
    enum reservation_state state;
    struct core_store *store; /* used from reserving to the end; else NULL */
    struct penstock_reservation reservation;
    Py_buffer key;
    uint64_t next, end; /* bytes: where a write goes on, and where the farthest one ended */
    uint64_t turn;      /* of the write that set next */
    uint32_t writers;   /* threads that write now */
};

static struct core_reservation *reservation_of(PyObject *self)
{
    return (struct core_reservation *)self;
}

static bool grows(const struct core_reservation *reservation)
{
    return reservation->reservation.bytes == PENSTOCK_BYTES_UNKNOWN;
}

static bool usable(const struct core_reservation *reservation)
{
    static const char *const faults[] = {
        [RESERVATION_NONE] = "the reservation is not reserved yet",
        [RESERVATION_RESERVING] = "the reservation is not reserved yet",
        [RESERVATION_ENDING] = "another thread ends the reservation",
        [RESERVATION_ENDED] = "the reservation has ended",
    };

    if (reservation->state != RESERVATION_OPEN)
        PyErr_SetString(PyExc_ValueError, faults[reservation->state]);
    return reservation->state == RESERVATION_OPEN;
}

/* From now on nobody else uses it. */
static bool begin_end(struct core_reservation *reservation)
{
    if (!usable(reservation))
        return false;
    if (reservation->writers)
        PyErr_SetString(PyExc_ValueError, "another thread writes the reservation");
    else
        reservation->state = RESERVATION_ENDING;
    return reservation->state == RESERVATION_ENDING;
}

/* ---- begin and end ---- */

/* For @op, which is to reserve it. Takes over @key. */
static struct core_reservation *make(struct core_store *store, Py_buffer *key, struct penstock_op *op)
{
    struct core_reservation *reservation = reservation_of(PyType_GenericAlloc(core_classes.Reservation, 0));

    if (reservation && !core_store_use(store))
        Py_CLEAR(reservation);
    if (!reservation)
        return NULL;
    reservation->store = (struct core_store *)Py_NewRef((PyObject *)store);
    reservation->state = RESERVATION_RESERVING;
    reservation->key = *key;
    key->obj = NULL;
    op->reservation = &reservation->reservation;
    return reservation;
}

/* The library's reservation is gone, or never was. */
static void leave(struct core_reservation *reservation)
{
    struct core_store *store = reservation->store;

    core_assert(store && reservation->writers == 0);
    reservation->store = NULL;
    reservation->state = RESERVATION_ENDED;
    core_return(&reservation->key);
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

static void prepare_commit(const struct core_reservation *reservation, bool durable,
                           struct penstock_reservation *named, struct penstock_op *op)
{
    *named = reservation->reservation;
    if (grows(reservation))
        named->bytes = reservation->end;
    penstock_prep_reservation_commit(op, reservation->key.buf, (size_t)reservation->key.len, named);
    op->flags = durable ? PENSTOCK_DURABLE : 0;
}

static void abort_reservation(struct core_reservation *reservation)
{
    struct penstock_op op = {0};

    if (!reservation->store)
        return;
    reservation->state = RESERVATION_ENDING;
    if (reservation->reservation.handle) { /* it was reserved */
        penstock_prep_reservation_abort(&op, reservation->key.buf, (size_t)reservation->key.len,
                                        &reservation->reservation);
        core_run(reservation->store, &op);
    }
    leave(reservation);
}

/* ---- reserving ---- */

static int take_bytes(PyObject *arg, uint64_t *out)
{
    *out = PENSTOCK_BYTES_UNKNOWN;
    return core_absent(arg) ? 0 : core_number(arg, "nbytes", INT64_MAX, out);
}

enum {
    RESERVE_KEY,
    RESERVE_BYTES,
    RESERVE_DEPTH,
    RESERVE_ATTRS,
    RESERVE_GENERATION,
    RESERVE_REPLACE,
    RESERVE_TTL
};
static struct core_call reserve_call = {
    "reserve", 1, 2, {"key", "nbytes", "depth", "attrs", "if_generation", "replace", "ttl"}, {NULL}};

static int prepare_reserve(const Py_buffer *key, PyObject **given, struct penstock_op *op, Py_buffer *attrs)
{
    PyObject *options[CORE_PUT_OPTIONS] = {
        [CORE_IF_GENERATION] = given[RESERVE_GENERATION],
        [CORE_DEPTH] = given[RESERVE_DEPTH],
        [CORE_ATTRS] = given[RESERVE_ATTRS],
        [CORE_TTL] = given[RESERVE_TTL],
    };
    uint64_t bytes;
    bool replace;

    if (take_bytes(given[RESERVE_BYTES], &bytes) < 0 || core_flag(given[RESERVE_REPLACE], &replace) < 0)
        return -1;
    penstock_prep_reserve(op, key->buf, (size_t)key->len, bytes, NULL);
    if (core_put_options(options, op, attrs) < 0)
        return -1;
    op->flags |= replace ? PENSTOCK_REPLACE : 0;
    return 0;
}

PyObject *core_reserve(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = (struct core_store *)self;
    PyObject *given[CORE_ARGS_MAX];
    struct penstock_op op = {0};
    Py_buffer key, attrs = {0};
    struct core_reservation *reservation = NULL;

    if (core_args(&reserve_call, args, count, keywords, given) < 0 ||
        core_borrow_key(given[RESERVE_KEY], "key", &key) < 0)
        return NULL;
    if (prepare_reserve(&key, given, &op, &attrs) == 0)
        reservation = make(store, &key, &op);
    if (reservation && core_run(store, &op) != 0) {
        core_raise_op(&op);
        Py_CLEAR(reservation);
    }
    if (reservation)
        reservation->state = RESERVATION_OPEN;
    core_return(&attrs);
    core_return(&key);
    return (PyObject *)reservation;
}

/* ---- many at once ---- */

/* Reads each pair (key, nbytes or None) of @pairs. Return: how many keys were borrowed; fewer with an
 * exception. */
static size_t read_pairs(PyObject *pairs, Py_buffer *keys, struct penstock_op *ops)
{
    size_t count = (size_t)PyTuple_Size(pairs);

    for (size_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, (Py_ssize_t)i);
        uint64_t bytes;

        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            core_type_error("each of items", "a tuple of two, (key, nbytes)", pair);
            return i;
        }
        if (take_bytes(PyTuple_GetItem(pair, 1), &bytes) < 0 ||
            core_borrow_key(PyTuple_GetItem(pair, 0), "key", &keys[i]) < 0)
            return i;
        penstock_prep_reserve(&ops[i], keys[i].buf, (size_t)keys[i].len, bytes, NULL);
    }
    return count;
}

/* Reserves a reservation for each of @ops, or none. */
static PyObject *reserve_all(struct core_store *store, Py_buffer *keys, struct penstock_op *ops, size_t count)
{
    PyObject *out = PyTuple_New((Py_ssize_t)count), *list;
    int r = 0;

    for (size_t i = 0; out && i < count; i++) {
        PyObject *reservation = (PyObject *)make(store, &keys[i], &ops[i]);

        if (!reservation || PyTuple_SetItem(out, (Py_ssize_t)i, reservation) < 0)
            Py_CLEAR(out);
    }
    if (!out || !core_store_use(store)) {
        Py_XDECREF(out);
        return NULL;
    }
    r = core_run_all(store, ops, count);
    core_store_leave(store);
    if (r > 0)
        core_raise_batch(ops, count, 0);
    for (size_t i = 0; r == 0 && i < count; i++)
        reservation_of(PyTuple_GetItem(out, (Py_ssize_t)i))->state = RESERVATION_OPEN;
    list = r == 0 ? PySequence_List(out) : NULL; /* without it go those that were reserved, too */
    Py_DECREF(out);
    return list;
}

/* reserve_pairs(list of (key, nbytes), depth, replace) */
PyObject *core_reserve_pairs(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *pairs, *out = NULL;
    struct penstock_op *ops;
    size_t borrowed = 0, n;
    Py_buffer *keys;
    uint16_t depth;
    bool replace;

    if (count != 3 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "reserve_pairs() takes a list, depth and replace");
        return NULL;
    }
    if (core_depth(args[1], &depth) < 0 || core_flag(args[2], &replace) < 0)
        return NULL;
    pairs = core_items(args[0], "items");
    if (!pairs)
        return NULL;
    n = (size_t)PyTuple_Size(pairs);
    ops = PyMem_Calloc(n + 1, sizeof(*ops));
    keys = PyMem_Calloc(n + 1, sizeof(*keys));
    if (ops && keys)
        borrowed = read_pairs(pairs, keys, ops);
    else
        PyErr_NoMemory();
    for (size_t i = 0; i < borrowed; i++) {
        ops[i].depth = depth;
        ops[i].flags = replace ? PENSTOCK_REPLACE : 0;
    }
    if (!PyErr_Occurred())
        out = reserve_all((struct core_store *)self, keys, ops, n);
    for (size_t i = 0; i < borrowed; i++)
        core_return(&keys[i]);
    PyMem_Free(ops);
    PyMem_Free(keys);
    Py_DECREF(pairs);
    return out;
}

/* ---- writing ---- */

static PyObject *write_at(struct core_reservation *reservation, struct core_data *data, uint64_t offset)
{
    struct penstock_op op = {0};
    uint64_t before = reservation->next, turn;

    penstock_prep_write_at(&op, reservation->key.buf, (size_t)reservation->key.len, &reservation->reservation,
                           offset, NULL, 0);
    if (core_set_data(&op, data, false) < 0)
        return NULL;
    turn = ++reservation->turn;
    reservation->next = offset + data->bytes; /* now, for other threads that write meanwhile */
    reservation->writers++;
    core_run(reservation->store, &op);
    reservation->writers--;
    if (op.result != 0 && reservation->turn == turn) { /* none came meanwhile, or it failed, too */
        reservation->next = before;
        reservation->turn = turn - 1;
    }
    if (op.result != 0)
        return core_raise_op(&op);
    if (data->bytes && reservation->end < offset + data->bytes) /* an empty write leaves nothing behind */
        reservation->end = offset + data->bytes;
    return PyLong_FromUnsignedLongLong(data->bytes);
}

static struct core_call write_call = {"write", 1, 2, {"data", "offset"}, {NULL}};

static PyObject *reservation_write(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    struct core_reservation *reservation = reservation_of(self);
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct core_data data;
    uint64_t offset = 0;

    if (core_args(&write_call, args, count, keywords, given) < 0 ||
        (!core_absent(given[1]) && core_number(given[1], "offset", INT64_MAX, &offset) < 0) ||
        core_borrow_data(given[0], "data", false, &data) < 0)
        return NULL;
    if (usable(reservation))
        out = write_at(reservation, &data, core_absent(given[1]) ? reservation->next : offset);
    core_return_data(&data);
    return out;
}

/* Where a slice begins, when it has as many bytes as come: like a bytearray, but for that. Return: 0 or -1.
 */
static int place_of(const struct core_reservation *reservation, PyObject *slice, uint64_t bytes,
                    uint64_t *offset)
{
    Py_ssize_t start, stop, step,
        size = grows(reservation) ? PY_SSIZE_T_MAX : (Py_ssize_t)reservation->reservation.bytes;

    if (!PySlice_Check(slice))
        return core_type_error("what of a reservation is assigned", "a slice", slice);
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0)
        return -1;
    if (step != 1 || (grows(reservation) && (start < 0 || stop < 0))) {
        PyErr_SetString(PyExc_ValueError, step != 1 ? "a reservation is written without gaps"
                                                    : "a reservation that grows has no end to count from");
        return -1;
    }
    if (grows(reservation) && stop == PY_SSIZE_T_MAX && bytes <= (uint64_t)(PY_SSIZE_T_MAX - start))
        stop = start + (Py_ssize_t)bytes;
    if ((uint64_t)PySlice_AdjustIndices(size, &start, &stop, step) != bytes) {
        PyErr_Format(PyExc_ValueError, "%llu bytes do not fit into a slice of %zd", (unsigned long long)bytes,
                     stop > start ? stop - start : (Py_ssize_t)0);
        return -1;
    }
    *offset = (uint64_t)start;
    return 0;
}

static int reservation_assign(PyObject *self, PyObject *slice, PyObject *value)
{
    struct core_reservation *reservation = reservation_of(self);
    struct core_data data;
    PyObject *out = NULL;
    uint64_t offset = 0;

    if (!value) {
        PyErr_SetString(PyExc_TypeError, "bytes of a reservation cannot be deleted");
        return -1;
    }
    if (core_borrow_data(value, "data", false, &data) < 0)
        return -1;
    if (place_of(reservation, slice, data.bytes, &offset) == 0 && usable(reservation))
        out = write_at(reservation, &data, offset);
    core_return_data(&data);
    Py_XDECREF(out);
    return out ? 0 : -1;
}

/* ---- the end ---- */

/* Ends a reservation whose commit has the outcome @result; nothing was done to one for which the store was
 * busy, or that it cannot make durable. */
static void committed(struct core_reservation *reservation, int result)
{
    reservation->state = RESERVATION_OPEN;
    if (result != PENSTOCK_BUSY && result != -EOPNOTSUPP && result != -EFBIG)
        leave(reservation);
}

static struct core_call commit_call = {"commit", 0, 0, {"durable"}, {NULL}};

static PyObject *reservation_commit(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    struct core_reservation *reservation = reservation_of(self);
    PyObject *given[CORE_ARGS_MAX], *out;
    struct penstock_reservation named;
    struct penstock_op op = {0};
    bool durable;

    if (core_args(&commit_call, args, count, keywords, given) < 0 || core_flag(given[0], &durable) < 0 ||
        !begin_end(reservation))
        return NULL;
    prepare_commit(reservation, durable, &named, &op);
    core_run(reservation->store, &op);
    out = op.result == 0 ? PyLong_FromUnsignedLongLong(op.generation) : core_raise_op(&op);
    committed(reservation, op.result);
    return out;
}

/* Reservations of a batch, as the library and as Python has them. */
struct commits {
    PyObject *reservations;
    size_t count; /* of them, how many are prepared */
    struct penstock_op *ops;
    struct penstock_reservation *named;
};

static int prepare_all(struct core_store *store, bool durable, struct commits *c)
{
    size_t count = (size_t)PyTuple_Size(c->reservations);

    c->ops = PyMem_Calloc(count + 1, sizeof(*c->ops));
    c->named = PyMem_Calloc(count + 1, sizeof(*c->named));
    if (!c->ops || !c->named) {
        PyErr_NoMemory();
        return -1;
    }
    for (; c->count < count; c->count++) {
        PyObject *item = PyTuple_GetItem(c->reservations, (Py_ssize_t)c->count);

        if (!PyObject_TypeCheck(item, core_classes.Reservation))
            return core_type_error("each of reservations", "a Reservation", item);
        if (!begin_end(reservation_of(item))) /* also when it comes twice */
            return -1;
        prepare_commit(reservation_of(item), durable, &c->named[c->count], &c->ops[c->count]);
        if (reservation_of(item)->store != store) {
            reservation_of(item)->state = RESERVATION_OPEN;
            PyErr_SetString(PyExc_ValueError, "a reservation of another store");
            return -1;
        }
    }
    return 0;
}

static PyObject *generations_of(const struct commits *c)
{
    PyObject *out = PyList_New((Py_ssize_t)c->count);

    for (size_t i = 0; out && i < c->count; i++) {
        PyObject *one = PyLong_FromUnsignedLongLong(c->ops[i].generation);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

static struct core_call commit_many_call = {"commit_many", 1, 1, {"reservations", "durable"}, {NULL}};

PyObject *core_commit_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = (struct core_store *)self;
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct commits c = {0};
    bool durable;
    int r = -1;

    if (core_args(&commit_many_call, args, count, keywords, given) < 0 || core_flag(given[1], &durable) < 0)
        return NULL;
    c.reservations = PySequence_Tuple(given[0]);
    if (!c.reservations || !core_store_use(store)) {
        Py_XDECREF(c.reservations);
        return NULL;
    }
    if (prepare_all(store, durable, &c) == 0)
        r = core_run_all(store, c.ops, c.count);
    if (r > 0)
        core_raise_batch(c.ops, c.count, 0);
    if (r == 0)
        out = generations_of(&c);
    for (size_t i = 0; i < c.count; i++)
        committed(reservation_of(PyTuple_GetItem(c.reservations, (Py_ssize_t)i)),
                  r < 0 ? PENSTOCK_BUSY : c.ops[i].result);
    PyMem_Free(c.ops);
    PyMem_Free(c.named);
    Py_DECREF(c.reservations);
    core_store_leave(store);
    return out;
}

static PyObject *reservation_abort(PyObject *self, PyObject *unused)
{
    struct core_reservation *reservation = reservation_of(self);

    (void)unused;
    if (reservation->store && !begin_end(reservation))
        return NULL;
    abort_reservation(reservation);
    Py_RETURN_NONE;
}

static PyObject *reservation_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return usable(reservation_of(self)) ? Py_NewRef(self) : NULL;
}

/* Commits, unless the block has ended it, or ends with an exception. */
static PyObject *reservation_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *generation;

    if (count < 1 || args[0] != Py_None || !reservation_of(self)->store)
        return reservation_abort(self, NULL);
    generation = reservation_commit(self, NULL, 0, NULL);
    if (!generation)
        return NULL;
    Py_DECREF(generation);
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *reservation_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    if (grows(reservation_of(self)))
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(reservation_of(self)->reservation.bytes);
}

static PyObject *reservation_location(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromStringAndSize(reservation_of(self)->reservation.location,
                                       reservation_of(self)->reservation.location_bytes);
}

static PyObject *reservation_repr(PyObject *self)
{
    return core_repr("Reservation", reservation_of(self)->store, &reservation_of(self)->key);
}

static int reservation_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)reservation_of(self)->store);
    return 0;
}

static void reservation_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    abort_reservation(reservation_of(self));
    core_return(&reservation_of(self)->key); /* of one that no store was found for */
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyMethodDef methods[] = {
    {"write", CORE_FAST(reservation_write), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Reservation_write},
    {"commit", CORE_FAST(reservation_commit), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Reservation_commit},
    {"abort", reservation_abort, METH_NOARGS, CORE_DOC_Reservation_abort},
    {"__enter__", reservation_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_FAST(reservation_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"nbytes", reservation_nbytes, NULL, CORE_DOC_Reservation_nbytes, NULL},
    {"location", reservation_location, NULL, CORE_DOC_Reservation_location, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Reservation},
    {Py_tp_dealloc, (void *)reservation_dealloc},
    {Py_tp_repr, (void *)reservation_repr},
    {Py_tp_traverse, (void *)reservation_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_mp_ass_subscript, (void *)reservation_assign},
    {0, NULL},
};

PyType_Spec core_reservation_spec = {
    .name = "penstock._core.Reservation",
    .basicsize = sizeof(struct core_reservation),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
