/*
 * slot.c: memory for a key's next value, which nobody else sees until it is committed. Several threads may
 * write one at once; a slot that is left without a commit is aborted.
 */
#include "core.h"
#include "docs.h"

#include <errno.h>

struct core_slot {
    PyObject ob_base;
    struct core_store *store; /* used until the end; then NULL */
    struct penstock_slot slot;
    Py_buffer key;
    uint64_t next, end; /* bytes: where a write goes on, and where the farthest one ended */
    uint32_t writers;   /* threads that write now */
    bool ending;        /* a thread commits or aborts it now */
};

static struct core_slot *slot_of(PyObject *self)
{
    return (struct core_slot *)self;
}

static bool grows(const struct core_slot *slot)
{
    return slot->slot.bytes == PENSTOCK_BYTES_UNKNOWN;
}

static bool usable(const struct core_slot *slot)
{
    bool is = slot->store && !slot->ending;

    if (!is)
        PyErr_SetString(PyExc_ValueError,
                        slot->store ? "another thread ends the slot" : "the slot has ended");
    return is;
}

/* From now on nobody else uses it. */
static bool begin_end(struct core_slot *slot)
{
    if (!usable(slot))
        return false;
    slot->ending = slot->writers == 0;
    if (!slot->ending)
        PyErr_SetString(PyExc_ValueError, "another thread writes the slot");
    return slot->ending;
}

/* ---- begin and end ---- */

static struct core_slot *make(struct core_store *store, PyObject *key)
{
    struct core_slot *slot = slot_of(PyType_GenericAlloc(core_classes.Slot, 0));

    if (slot && (core_borrow_key(key, "key", &slot->key) < 0 || !core_store_use(store)))
        Py_CLEAR(slot);
    if (slot)
        slot->store = (struct core_store *)Py_NewRef((PyObject *)store);
    return slot;
}

/* The library's slot is gone, or never was. */
static void leave(struct core_slot *slot)
{
    struct core_store *store = slot->store;

    core_assert(store && slot->writers == 0);
    slot->store = NULL;
    core_return(&slot->key);
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

static void prepare_commit(const struct core_slot *slot, bool durable, struct penstock_slot *named,
                           struct penstock_op *op)
{
    *named = slot->slot;
    if (grows(slot))
        named->bytes = slot->end;
    penstock_prep_slot_commit(op, slot->key.buf, (size_t)slot->key.len, named);
    op->flags = durable ? PENSTOCK_DURABLE : 0;
}

static void abort_slot(struct core_slot *slot)
{
    struct penstock_op op = {0};

    if (!slot->store)
        return;
    slot->ending = true;
    if (slot->slot.handle) { /* it was reserved */
        penstock_prep_slot_abort(&op, slot->key.buf, (size_t)slot->key.len, &slot->slot);
        core_run(slot->store, &op);
    }
    leave(slot);
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

static int prepare_reserve(struct core_slot *slot, PyObject **given, struct penstock_op *op, Py_buffer *attrs)
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
    penstock_prep_reserve(op, slot->key.buf, (size_t)slot->key.len, bytes, &slot->slot);
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
    Py_buffer attrs = {0};
    struct core_slot *slot;

    if (core_args(&reserve_call, args, count, keywords, given) < 0)
        return NULL;
    slot = make(store, given[RESERVE_KEY]);
    if (!slot)
        return NULL;
    if (prepare_reserve(slot, given, &op, &attrs) == 0 && core_run(store, &op) != 0)
        core_raise_op(&op);
    core_return(&attrs);
    if (PyErr_Occurred())
        Py_CLEAR(slot);
    return (PyObject *)slot;
}

/* ---- many at once ---- */

/* A slot that is to be reserved for each pair (key, nbytes or None) of @pairs. */
static PyObject *make_all(struct core_store *store, PyObject *pairs, struct penstock_op *ops, uint16_t depth,
                          uint8_t flags)
{
    Py_ssize_t count = PyList_Size(pairs);
    PyObject *out = PyList_New(0);

    for (Py_ssize_t i = 0; out && i < count; i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        struct core_slot *slot = NULL;
        uint64_t bytes;

        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
            core_type_error("each of items", "a tuple (key, nbytes)", pair);
        else if (take_bytes(PyTuple_GetItem(pair, 1), &bytes) == 0)
            slot = make(store, PyTuple_GetItem(pair, 0));
        if (!slot || PyList_Append(out, (PyObject *)slot) < 0) {
            Py_CLEAR(out);
        } else {
            penstock_prep_reserve(&ops[i], slot->key.buf, (size_t)slot->key.len, bytes, &slot->slot);
            ops[i].depth = depth;
            ops[i].flags = flags;
        }
        Py_XDECREF((PyObject *)slot);
    }
    return out;
}

/* reserve_pairs(list of (key, nbytes), depth, replace) */
PyObject *core_reserve_pairs(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct core_store *store = (struct core_store *)self;
    struct penstock_op *ops;
    PyObject *out = NULL;
    uint16_t depth;
    bool replace;
    size_t n;
    int r;

    if (count != 3 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "reserve_pairs() takes a list, depth and replace");
        return NULL;
    }
    if (core_depth(args[1], &depth) < 0 || core_flag(args[2], &replace) < 0 || !core_store_use(store))
        return NULL;
    n = (size_t)PyList_Size(args[0]);
    ops = PyMem_Calloc(n + 1, sizeof(*ops));
    if (ops)
        out = make_all(store, args[0], ops, depth, replace ? PENSTOCK_REPLACE : 0);
    else
        PyErr_NoMemory();
    r = out ? core_run_all(store, ops, n) : 0;
    if (r > 0)
        core_raise_batch(ops, n, 0);
    if (r != 0)
        Py_CLEAR(out); /* and with it those that were reserved */
    PyMem_Free(ops);
    core_store_leave(store);
    return out;
}

/* ---- writing ---- */

static PyObject *write_at(struct core_slot *slot, const struct core_data *data, uint64_t offset)
{
    struct penstock_op op = {0};

    penstock_prep_slot_write(&op, slot->key.buf, (size_t)slot->key.len, &slot->slot, offset, NULL, 0);
    core_set_data(&op, data);
    slot->next = offset + data->bytes;
    slot->writers++;
    core_run(slot->store, &op);
    slot->writers--;
    if (op.result != 0)
        return core_raise_op(&op);
    slot->end = slot->end > offset + data->bytes ? slot->end : offset + data->bytes;
    return PyLong_FromUnsignedLongLong(data->bytes);
}

static struct core_call write_call = {"write", 1, 2, {"data", "offset"}, {NULL}};

static PyObject *slot_write(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_slot *slot = slot_of(self);
    PyObject *given[CORE_ARGS_MAX], *out;
    uint64_t offset = slot->next;
    struct core_data data;

    if (core_args(&write_call, args, count, keywords, given) < 0 || !usable(slot) ||
        (!core_absent(given[1]) && core_number(given[1], "offset", INT64_MAX, &offset) < 0) ||
        core_borrow_data(given[0], "data", false, &data) < 0)
        return NULL;
    out = write_at(slot, &data, offset);
    core_return_data(&data);
    return out;
}

/* Where a slice begins, when it has as many bytes as come: like a bytearray, but for that. Return: 0 or -1.
 */
static int place_of(const struct core_slot *slot, PyObject *slice, uint64_t bytes, uint64_t *offset)
{
    Py_ssize_t start, stop, step, size = grows(slot) ? PY_SSIZE_T_MAX : (Py_ssize_t)slot->slot.bytes;

    if (!PySlice_Check(slice))
        return core_type_error("what of a slot is assigned", "a slice", slice);
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0)
        return -1;
    if (step != 1 || (grows(slot) && (start < 0 || stop < 0))) {
        PyErr_SetString(PyExc_ValueError, step != 1 ? "a slot is written without gaps"
                                                    : "a slot that grows has no end to count from");
        return -1;
    }
    if (grows(slot) && stop == PY_SSIZE_T_MAX && bytes <= (uint64_t)(PY_SSIZE_T_MAX - start))
        stop = start + (Py_ssize_t)bytes;
    if ((uint64_t)PySlice_AdjustIndices(size, &start, &stop, step) != bytes) {
        PyErr_Format(PyExc_ValueError, "%llu bytes do not fit into a slice of %zd", (unsigned long long)bytes,
                     stop > start ? stop - start : (Py_ssize_t)0);
        return -1;
    }
    *offset = (uint64_t)start;
    return 0;
}

static int slot_assign(PyObject *self, PyObject *slice, PyObject *value)
{
    struct core_slot *slot = slot_of(self);
    struct core_data data;
    PyObject *out = NULL;
    uint64_t offset = 0;

    if (!value) {
        PyErr_SetString(PyExc_TypeError, "bytes of a slot cannot be deleted");
        return -1;
    }
    if (!usable(slot) || core_borrow_data(value, "data", false, &data) < 0)
        return -1;
    if (place_of(slot, slice, data.bytes, &offset) == 0)
        out = write_at(slot, &data, offset);
    core_return_data(&data);
    Py_XDECREF(out);
    return out ? 0 : -1;
}

/* ---- the end ---- */

/* Ends a slot whose commit has the outcome @result; nothing was done to one for which the store was busy, or
 * that it cannot make durable. */
static void committed(struct core_slot *slot, int result)
{
    slot->ending = false;
    if (result != PENSTOCK_BUSY && result != -EOPNOTSUPP && result != -EFBIG)
        leave(slot);
}

static struct core_call commit_call = {"commit", 0, 0, {"durable"}, {NULL}};

static PyObject *slot_commit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_slot *slot = slot_of(self);
    PyObject *given[CORE_ARGS_MAX], *out;
    struct penstock_slot named;
    struct penstock_op op = {0};
    bool durable;

    if (core_args(&commit_call, args, count, keywords, given) < 0 || core_flag(given[0], &durable) < 0 ||
        !begin_end(slot))
        return NULL;
    prepare_commit(slot, durable, &named, &op);
    core_run(slot->store, &op);
    out = op.result == 0 ? PyLong_FromUnsignedLongLong(op.generation) : core_raise_op(&op);
    committed(slot, op.result);
    return out;
}

/* Slots of a batch, as the library and as Python has them. */
struct commits {
    PyObject *slots;
    size_t count; /* of them, how many are prepared */
    struct penstock_op *ops;
    struct penstock_slot *named;
};

static int prepare_all(struct core_store *store, bool durable, struct commits *c)
{
    size_t count = (size_t)PyList_Size(c->slots);

    c->ops = PyMem_Calloc(count + 1, sizeof(*c->ops));
    c->named = PyMem_Calloc(count + 1, sizeof(*c->named));
    if (!c->ops || !c->named) {
        PyErr_NoMemory();
        return -1;
    }
    for (; c->count < count; c->count++) {
        PyObject *item = PyList_GetItem(c->slots, (Py_ssize_t)c->count);

        if (!PyObject_TypeCheck(item, core_classes.Slot))
            return core_type_error("each of slots", "a Slot", item);
        if (!begin_end(slot_of(item))) /* also when it comes twice */
            return -1;
        prepare_commit(slot_of(item), durable, &c->named[c->count], &c->ops[c->count]);
        if (slot_of(item)->store != store) {
            slot_of(item)->ending = false;
            PyErr_SetString(PyExc_ValueError, "a slot of another store");
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

static struct core_call commit_many_call = {"commit_many", 1, 1, {"slots", "durable"}, {NULL}};

PyObject *core_commit_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = (struct core_store *)self;
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct commits c = {0};
    bool durable;
    int r = -1;

    if (core_args(&commit_many_call, args, count, keywords, given) < 0 || core_flag(given[1], &durable) < 0)
        return NULL;
    c.slots = PySequence_List(given[0]);
    if (!c.slots || !core_store_use(store)) {
        Py_XDECREF(c.slots);
        return NULL;
    }
    if (prepare_all(store, durable, &c) == 0)
        r = core_run_all(store, c.ops, c.count);
    if (r > 0)
        core_raise_batch(c.ops, c.count, 0);
    if (r == 0)
        out = generations_of(&c);
    for (size_t i = 0; i < c.count; i++)
        committed(slot_of(PyList_GetItem(c.slots, (Py_ssize_t)i)), r < 0 ? PENSTOCK_BUSY : c.ops[i].result);
    PyMem_Free(c.ops);
    PyMem_Free(c.named);
    Py_DECREF(c.slots);
    core_store_leave(store);
    return out;
}

static PyObject *slot_abort(PyObject *self, PyObject *unused)
{
    struct core_slot *slot = slot_of(self);

    (void)unused;
    if (slot->store && !begin_end(slot))
        return NULL;
    abort_slot(slot);
    Py_RETURN_NONE;
}

static PyObject *slot_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return usable(slot_of(self)) ? Py_NewRef(self) : NULL;
}

static PyObject *slot_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)args;
    (void)count;
    return slot_abort(self, NULL);
}

/* ---- the type ---- */

static PyObject *slot_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    if (grows(slot_of(self)))
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(slot_of(self)->slot.bytes);
}

static PyObject *slot_location(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromStringAndSize(slot_of(self)->slot.location, slot_of(self)->slot.location_bytes);
}

static int slot_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)slot_of(self)->store);
    return 0;
}

static void slot_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    abort_slot(slot_of(self));
    core_return(&slot_of(self)->key); /* of one that no store was found for */
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyMethodDef methods[] = {
    {"write", CORE_FAST(slot_write), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Slot_write},
    {"commit", CORE_FAST(slot_commit), METH_FASTCALL | METH_KEYWORDS, CORE_DOC_Slot_commit},
    {"abort", slot_abort, METH_NOARGS, CORE_DOC_Slot_abort},
    {"__enter__", slot_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_FAST(slot_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"nbytes", slot_nbytes, NULL, CORE_DOC_Slot_nbytes, NULL},
    {"location", slot_location, NULL, CORE_DOC_Slot_location, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Slot},
    {Py_tp_dealloc, (void *)slot_dealloc},
    {Py_tp_traverse, (void *)slot_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_mp_ass_subscript, (void *)slot_assign},
    {0, NULL},
};

PyType_Spec core_slot_spec = {
    .name = "penstock._core.Slot",
    .basicsize = sizeof(struct core_slot),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
