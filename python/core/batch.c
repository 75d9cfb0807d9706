/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.c: many operations in one call: all of them are prepared here, in memory that the store keeps from
 * one batch to the next, and travel together.
 */
#include "core.h"

#include <errno.h>

enum {
    ROOM_BYTES_MAX = 4096,            /* a value of unknown size is read here first */
    ROOM_BYTES_MIN = 256,             /* in batches of many */
    ROOMS_BYTES = 1 << 20,            /* of one batch together, as far as the least allows */
    ROOM_GAP_BYTES = 64,              /* so that rooms do not all begin in one set of the cache */
    SCRATCH_KEPT_BYTES_MAX = 4 << 20, /* more is given back */
    GET_TRIES_MAX = 8,                /* while others write larger and larger values */
};

struct batch {
    struct core_store *store;
    size_t count;
    struct penstock_op *ops;
    Py_buffer *keys;
    struct core_data *data; /* where operations have memory of the caller's */
    uint8_t *rooms;         /* where they have none */
    size_t room_bytes;
    size_t keys_borrowed, data_borrowed;
    void *memory; /* all of the above */
    size_t memory_bytes;
};

/* ---- memory ---- */

/* Takes the store's scratch, which another thread's batch may have just now. */
static int take_memory(struct batch *b, size_t bytes)
{
    b->memory = b->store->scratch;
    b->memory_bytes = b->store->scratch_bytes;
    b->store->scratch = NULL;
    b->store->scratch_bytes = 0;
    if (b->memory_bytes >= bytes)
        return 0;
    PyMem_Free(b->memory);
    b->memory = PyMem_Malloc(bytes);
    b->memory_bytes = bytes;
    if (!b->memory)
        PyErr_NoMemory();
    return b->memory ? 0 : -1;
}

static void give_memory(struct batch *b)
{
    if (!b->store->scratch && b->memory && b->memory_bytes <= SCRATCH_KEPT_BYTES_MAX) {
        b->store->scratch = b->memory;
        b->store->scratch_bytes = b->memory_bytes;
    } else {
        PyMem_Free(b->memory);
    }
    b->memory = NULL;
}

static void batch_close(struct batch *b)
{
    for (size_t i = 0; i < b->keys_borrowed; i++)
        core_return(&b->keys[i]);
    for (size_t i = 0; i < b->data_borrowed; i++)
        core_return_data(&b->data[i]);
    give_memory(b);
    core_store_leave(b->store);
}

/* Room for @count operations, with memory of the caller's or @rooms of our own. */
static int batch_open(PyObject *self, Py_ssize_t count, bool rooms, struct batch *b)
{
    size_t each = sizeof(*b->ops) + sizeof(*b->keys), n = (size_t)count;

    *b = (struct batch){.store = (struct core_store *)self, .count = n};
    if (count < 0 || !core_store_use(b->store))
        return -1;
    if (rooms && n) {
        b->room_bytes = ROOMS_BYTES / n / 64 * 64;
        b->room_bytes = b->room_bytes > ROOM_BYTES_MAX   ? ROOM_BYTES_MAX
                        : b->room_bytes < ROOM_BYTES_MIN ? ROOM_BYTES_MIN
                                                         : b->room_bytes;
    }
    each += rooms ? b->room_bytes + ROOM_GAP_BYTES : sizeof(*b->data);
    if (n > PTRDIFF_MAX / each) {
        PyErr_NoMemory();
        core_store_leave(b->store);
        return -1;
    }
    if (take_memory(b, n * each) < 0) {
        core_store_leave(b->store);
        return -1;
    }
    b->ops = b->memory;
    b->keys = (Py_buffer *)(b->ops + n);
    b->data = rooms ? NULL : (struct core_data *)(b->keys + n);
    b->rooms = rooms ? (uint8_t *)(b->keys + n) : NULL;
    if (n)
        memset(b->ops, 0, n * sizeof(*b->ops));
    return 0;
}

static uint8_t *room_of(const struct batch *b, size_t i)
{
    core_assert(b->rooms && i < b->count);
    return b->rooms + i * (b->room_bytes + ROOM_GAP_BYTES);
}

/* ---- arguments ---- */

PyObject *core_items(PyObject *arg, const char *name)
{
    PyObject *iterator, *items;

    if (PyTuple_Check(arg))
        return Py_NewRef(arg);
    if (PyList_Check(arg))
        return PyList_AsTuple(arg);
    if (PyUnicode_Check(arg) || PyBytes_Check(arg)) {
        core_type_error(name, "an iterable of keys", arg);
        return NULL;
    }
    iterator = PyObject_GetIter(arg);
    if (!iterator) {
        core_type_error(name, "an iterable", arg);
        return NULL;
    }
    items = PySequence_Tuple(iterator);
    Py_DECREF(iterator);
    return items;
}

/* Borrowed, of core_items(). */
static PyObject *item(PyObject *items, size_t i)
{
    return PyTuple_GetItem(items, (Py_ssize_t)i);
}

static int add_key(struct batch *b, PyObject *key, enum penstock_code code)
{
    size_t i = b->keys_borrowed;

    core_assert(i < b->count);
    if (!key || core_borrow_key(key, "key", &b->keys[i]) < 0)
        return -1;
    b->keys_borrowed++;
    penstock_prep(&b->ops[i], code, b->keys[i].buf, (size_t)b->keys[i].len);
    return 0;
}

static int add_data(struct batch *b, PyObject *data, const char *name, bool writable)
{
    size_t i = b->data_borrowed;

    core_assert(i < b->count && b->data);
    if (!data || core_borrow_data(data, name, writable, &b->data[i]) < 0)
        return -1;
    b->data_borrowed++;
    return core_set_data(&b->ops[i], &b->data[i], writable);
}

static int open_with_keys(PyObject *self, PyObject *keys, enum penstock_code code, bool rooms,
                          struct batch *b)
{
    PyObject *items = core_items(keys, "keys");
    int r;

    if (!items)
        return -1;
    r = batch_open(self, PyTuple_Size(items), rooms, b);
    if (r == 0) {
        for (size_t i = 0; r == 0 && i < b->count; i++)
            r = add_key(b, item(items, i), code);
        if (r < 0)
            batch_close(b);
    }
    Py_DECREF(items);
    return r;
}

int core_run_all(struct core_store *store, struct penstock_op *ops, size_t count)
{
    struct penstock *handle = store->handle;
    int r;

    Py_BEGIN_ALLOW_THREADS;
    r = penstock_batch(handle, ops, count);
    Py_END_ALLOW_THREADS;
    if (r < 0)
        core_raise(r, NULL);
    return r;
}

/* Whether an operation ended in another way than with 0 or @but. */
static bool any_bad(const struct batch *b, int but)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->ops[i].result != 0 && b->ops[i].result != but)
            return true;
    }
    return false;
}

/* ---- results ---- */

static PyObject *number_result(const struct penstock_op *op, uint64_t number)
{
    return op->result == 0 ? PyLong_FromUnsignedLongLong(number) : Py_NewRef(Py_None);
}

static PyObject *generation_result(const struct batch *b, size_t i)
{
    uint32_t copies = penstock_copies(&b->ops[i]);

    b->store->copies = i == 0 || copies < b->store->copies ? copies : b->store->copies;
    return number_result(&b->ops[i], b->ops[i].generation);
}

static PyObject *bytes_result(const struct batch *b, size_t i)
{
    const struct penstock_op *op = &b->ops[i];

    if (op->result == 0)
        core_spread_data(&b->data[i], op);
    return number_result(op, op->flags & PENSTOCK_RANGE ? op->bytes : op->value_bytes);
}

static PyObject *found_result(const struct batch *b, size_t i)
{
    return Py_NewRef(b->ops[i].result == 0 ? Py_True : Py_False);
}

/* Raises the batch's first failure; what of the others there is goes with it, as a list that this takes. */
static void raise_with(const struct batch *b, int but, PyObject *values)
{
    core_raise_batch(b->ops, b->count, but);
    core_error_says("values", values);
}

/* Runs the batch, closes it, and makes a list of its results; a result but 0 and @but raises. */
static PyObject *finish(struct batch *b, int but, PyObject *(*result)(const struct batch *, size_t))
{
    int failed = core_run_all(b->store, b->ops, b->count);
    PyObject *out = NULL;

    if (failed >= 0)
        out = PyList_New((Py_ssize_t)b->count);
    for (size_t i = 0; out && i < b->count; i++) {
        PyObject *one = result(b, i);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    if (out && failed > 0 && any_bad(b, but)) {
        raise_with(b, but, out);
        out = NULL;
    }
    batch_close(b);
    return out;
}

PyObject *core_exists_many(PyObject *self, PyObject *keys)
{
    struct batch b;

    if (open_with_keys(self, keys, PENSTOCK_STAT_KEY, false, &b) < 0)
        return NULL;
    return finish(&b, PENSTOCK_MISS, found_result);
}

PyObject *core_delete_many(PyObject *self, PyObject *keys)
{
    struct batch b;

    if (open_with_keys(self, keys, PENSTOCK_DELETE, false, &b) < 0)
        return NULL;
    return finish(&b, PENSTOCK_MISS, found_result);
}

/* ---- put ---- */

enum { PUT_ITEMS, PUT_IF_ABSENT, PUT_CHECKSUM, PUT_DEPTH, PUT_DURABLE };
static struct core_call put_call = {
    "put_many", 1, 1, {"items", "if_absent", "checksum", "depth", "durable"}, {NULL}};

static int add_put(struct batch *b, PyObject *key, PyObject *value, uint32_t flags, uint16_t depth)
{
    size_t i = b->keys_borrowed;

    if (add_key(b, key, PENSTOCK_PUT) < 0 || add_data(b, value, "value", false) < 0)
        return -1;
    b->ops[i].flags = flags;
    b->ops[i].depth = depth;
    return 0;
}

static int add_pairs(struct batch *b, PyObject *items, uint32_t flags, uint16_t depth)
{
    for (size_t i = 0; i < b->count; i++) {
        PyObject *pair = item(items, i);

        if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            if (pair)
                core_type_error("each of items", "a tuple of two, (key, value)", pair);
            return -1;
        }
        if (add_put(b, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), flags, depth) < 0)
            return -1;
    }
    return 0;
}

static int add_dict(struct batch *b, PyObject *items, uint32_t flags, uint16_t depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (b->keys_borrowed < b->count && PyDict_Next(items, &at, &key, &value)) {
        int r;

        Py_INCREF(key); /* what a value does when it is borrowed may take them out of the dict */
        Py_INCREF(value);
        r = add_put(b, key, value, flags, depth);
        Py_DECREF(key);
        Py_DECREF(value);
        if (r < 0)
            return -1;
    }
    if (b->keys_borrowed == b->count)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "items changed its size meanwhile");
    return -1;
}

PyObject *core_put_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *items;
    bool if_absent, checksum, durable;
    uint16_t depth;
    struct batch b;
    uint32_t flags;
    int r;

    if (core_args(&put_call, args, count, keywords, given) < 0 ||
        core_flag(given[PUT_IF_ABSENT], &if_absent) < 0 || core_flag(given[PUT_CHECKSUM], &checksum) < 0 ||
        core_depth(given[PUT_DEPTH], &depth) < 0 || core_flag(given[PUT_DURABLE], &durable) < 0)
        return NULL;
    flags = (if_absent ? PENSTOCK_IF_ABSENT : 0u) | (checksum ? PENSTOCK_CHECKSUM : 0u) |
            (durable ? PENSTOCK_DURABLE : 0u);
    items =
        PyDict_Check(given[PUT_ITEMS]) ? Py_NewRef(given[PUT_ITEMS]) : core_items(given[PUT_ITEMS], "items");
    if (!items)
        return NULL;
    r = batch_open(self, PyDict_Check(items) ? PyDict_Size(items) : PyTuple_Size(items), false, &b);
    if (r == 0) {
        r = PyDict_Check(items) ? add_dict(&b, items, flags, depth) : add_pairs(&b, items, flags, depth);
        if (r < 0)
            batch_close(&b);
    }
    Py_DECREF(items);
    return r == 0 ? finish(&b, 0, generation_result) : NULL;
}

/* ---- get into the caller's memory ---- */

enum { INTO_KEYS, INTO_BUFFERS, INTO_OFFSETS };
static struct core_call into_call = {"get_into_many", 2, 2, {"keys", "buffers", "offsets"}, {NULL}};

static int set_range(struct penstock_op *op, PyObject *offset)
{
    int64_t at;

    if (!offset || core_signed(offset, "offset", &at) < 0)
        return -1;
    op->flags = PENSTOCK_RANGE | (at < 0 ? PENSTOCK_FROM_END : 0);
    op->offset = at < 0 ? -(uint64_t)at : (uint64_t)at;
    return 0;
}

/* As many items as there are keys, or ValueError. */
static PyObject *items_like_keys(PyObject *arg, const char *name, const struct batch *b)
{
    PyObject *items = core_items(arg, name);

    if (items && PyTuple_Size(items) != (Py_ssize_t)b->count) {
        PyErr_Format(core_classes.Invalid, "%zu keys and %zd %s", b->count, PyTuple_Size(items), name);
        Py_CLEAR(items);
    }
    return items;
}

static int add_buffers(struct batch *b, PyObject *buffers, PyObject *offsets)
{
    PyObject *items = items_like_keys(buffers, "buffers", b);
    PyObject *ranges = items && !core_absent(offsets) ? items_like_keys(offsets, "offsets", b) : NULL;
    int r = items && !PyErr_Occurred() ? 0 : -1;

    for (size_t i = 0; r == 0 && i < b->count; i++) {
        r = add_data(b, item(items, i), "buffer", true);
        if (r == 0 && ranges)
            r = set_range(&b->ops[i], item(ranges, i));
    }
    Py_XDECREF(items);
    Py_XDECREF(ranges);
    return r;
}

PyObject *core_get_into_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX];
    struct batch b;

    if (core_args(&into_call, args, count, keywords, given) < 0 ||
        open_with_keys(self, given[INTO_KEYS], PENSTOCK_GET, false, &b) < 0)
        return NULL;
    if (add_buffers(&b, given[INTO_BUFFERS], given[INTO_OFFSETS]) < 0) {
        batch_close(&b);
        return NULL;
    }
    return finish(&b, PENSTOCK_MISS, bytes_result);
}

/* ---- puts and gets by address ---- */

enum { MOVE_KEYS, MOVE_PTRS, MOVE_SIZES, MOVE_DEPTHS, MOVE_PUTS, MOVE_DURABLE };
static struct core_call move_call = {
    "move_many", 6, 6, {"keys", "ptrs", "sizes", "depths", "puts", "durable"}, {NULL}};

static int check_keys(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        Py_ssize_t bytes = b->keys[i].len;

        if (bytes > 0 && bytes <= PENSTOCK_KEY_BYTES_MAX)
            continue;
        PyErr_Format(core_classes.Invalid, "keys[%zu] has %zd bytes, not 1 to %d", i, bytes,
                     PENSTOCK_KEY_BYTES_MAX);
        return -1;
    }
    return 0;
}

/* The @i-th of @items, which is neither 0 nor above @max. */
static int count_at(PyObject *items, size_t i, const char *name, uint64_t max, uint64_t *out)
{
    PyObject *one = item(items, i);

    if (!one || core_number(one, name, max, out) < 0)
        return -1;
    if (*out)
        return 0;
    PyErr_Format(core_classes.Invalid, "%s[%zu] is %s", name, i, strcmp(name, "ptrs") == 0 ? "null" : "0");
    return -1;
}

/* Deeper ones than a store tells apart count as one. */
static int depth_at(PyObject *depths, size_t i, uint16_t *out)
{
    PyObject *one = item(depths, i);
    int64_t depth;

    if (!one || core_signed(one, "depths", &depth) < 0)
        return -1;
    if (depth < -1) {
        PyErr_Format(core_classes.Invalid, "depths[%zu] is %lld, not -1 or more", i, (long long)depth);
        return -1;
    }
    *out = depth < 0                     ? PENSTOCK_DEPTH_NONE
           : depth < PENSTOCK_DEPTH_NONE ? (uint16_t)depth
                                         : PENSTOCK_DEPTH_NONE - 1;
    return 0;
}

static int add_addresses(struct batch *b, PyObject *const *given, uint32_t flags)
{
    PyObject *ptrs = items_like_keys(given[MOVE_PTRS], "ptrs", b);
    PyObject *sizes = ptrs ? items_like_keys(given[MOVE_SIZES], "sizes", b) : NULL;
    PyObject *depths =
        sizes && !core_absent(given[MOVE_DEPTHS]) ? items_like_keys(given[MOVE_DEPTHS], "depths", b) : NULL;
    int r = sizes && !PyErr_Occurred() ? check_keys(b) : -1;

    for (size_t i = 0; r == 0 && i < b->count; i++) {
        struct penstock_op *op = &b->ops[i];
        uint64_t address = 0;

        r = count_at(ptrs, i, "ptrs", UINTPTR_MAX, &address);
        if (r == 0)
            r = count_at(sizes, i, "sizes", INT64_MAX, &op->bytes);
        if (r == 0 && depths)
            r = depth_at(depths, i, &op->depth);
        op->data = (void *)(uintptr_t)address;
        op->flags = flags;
    }
    Py_XDECREF(ptrs);
    Py_XDECREF(sizes);
    Py_XDECREF(depths);
    return r;
}

/* What is there already was put; what is not there is no failure. */
static PyObject *moved(const struct batch *b, bool puts)
{
    PyObject *done = PyList_New((Py_ssize_t)b->count), *error = NULL;

    for (size_t i = 0; done && i < b->count; i++) {
        int result = b->ops[i].result;
        bool there = result == 0 || (puts && result == PENSTOCK_EXISTS);

        if (PyList_SetItem(done, (Py_ssize_t)i, PyBool_FromLong(there)) < 0)
            Py_CLEAR(done);
        if (done && !error && !there && result != PENSTOCK_MISS) {
            error = core_error_of(&b->ops[i]);
            if (!error)
                Py_CLEAR(done);
        }
    }
    if (done)
        return Py_BuildValue("(NN)", done, error ? error : Py_NewRef(Py_None));
    Py_XDECREF(error);
    return NULL;
}

PyObject *core_move_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    bool puts, durable;
    uint32_t flags;
    struct batch b;

    if (core_args(&move_call, args, count, keywords, given) < 0 || core_flag(given[MOVE_PUTS], &puts) < 0 ||
        core_flag(given[MOVE_DURABLE], &durable) < 0 ||
        open_with_keys(self, given[MOVE_KEYS], puts ? PENSTOCK_PUT : PENSTOCK_GET, false, &b) < 0)
        return NULL;
    flags = puts ? PENSTOCK_IF_ABSENT | (durable ? PENSTOCK_DURABLE : 0) : PENSTOCK_EXACT;
    if (add_addresses(&b, given, flags) == 0 && core_run_all(b.store, b.ops, b.count) >= 0)
        out = moved(&b, puts);
    batch_close(&b);
    return out;
}

/* ---- get ---- */

enum { GET_KEYS, GET_RANGES };
static struct core_call get_call = {"get_many", 1, 1, {"keys", "ranges"}, {NULL}};

/* Values that were larger than their rooms, read again into objects of their sizes. */
struct again {
    struct penstock_op *ops;
    PyObject **objects;
    size_t *places;
    size_t count;
};

static int again_open(const struct batch *b, struct again *a)
{
    *a = (struct again){0};
    for (size_t i = 0; i < b->count; i++)
        a->count += b->ops[i].result == -ENOBUFS;
    a->ops = PyMem_Calloc(a->count + 1, sizeof(*a->ops));
    a->objects = PyMem_Calloc(a->count + 1, sizeof(*a->objects));
    a->places = PyMem_Calloc(a->count + 1, sizeof(*a->places));
    if (a->ops && a->objects && a->places)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int again_prepare(const struct batch *b, struct again *a, int tries)
{
    size_t n = 0;

    for (size_t i = 0; i < b->count; i++) {
        const struct penstock_op *op = &b->ops[i];

        if (op->result != -ENOBUFS)
            continue;
        a->objects[n] = core_room(op->value_bytes, tries);
        if (!a->objects[n])
            return -1;
        a->places[n] = i;
        penstock_prep_get(&a->ops[n], op->key, op->key_bytes, PyBytes_AsString(a->objects[n]),
                          (uint64_t)PyBytes_Size(a->objects[n]));
        n++;
    }
    core_assert(n == a->count);
    return 0;
}

/* Reads them; what fits goes to @out. Return: 0, or -1 with an exception. */
static int again_run(const struct batch *b, struct again *a, int tries, PyObject *out)
{
    if (again_prepare(b, a, tries) < 0 || core_run_all(b->store, a->ops, a->count) < 0)
        return -1;
    for (size_t n = 0; n < a->count; n++) {
        struct penstock_op *op = &b->ops[a->places[n]];
        PyObject *one;

        op->result = a->ops[n].result;
        op->value_bytes = a->ops[n].value_bytes;
        if (op->result != 0)
            continue;
        one = core_bytes_of(b->store, &a->ops[n], a->objects[n]);
        if (!one || PyList_SetItem(out, (Py_ssize_t)a->places[n], one) < 0)
            return -1;
    }
    return 0;
}

static int read_again(const struct batch *b, int tries, PyObject *out)
{
    struct again a;
    int r = again_open(b, &a);

    if (r == 0 && a.count)
        r = again_run(b, &a, tries, out);
    for (size_t n = 0; a.objects && n < a.count; n++)
        Py_XDECREF(a.objects[n]);
    PyMem_Free(a.ops);
    PyMem_Free(a.objects);
    PyMem_Free(a.places);
    return r < 0 ? -1 : a.count > 0;
}

/* What the rooms hold; None for what is not there, and for what is read again. */
static int take_rooms(const struct batch *b, PyObject *out)
{
    for (size_t i = 0; i < b->count; i++) {
        PyObject *one = b->ops[i].result == 0 ? PyBytes_FromStringAndSize((const char *)room_of(b, i),
                                                                          (Py_ssize_t)b->ops[i].value_bytes)
                                              : Py_NewRef(Py_None);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            return -1;
    }
    return 0;
}

static PyObject *get_whole(struct batch *b)
{
    PyObject *out;
    int failed, more = 1;

    for (size_t i = 0; i < b->count; i++) {
        b->ops[i].data = room_of(b, i);
        b->ops[i].bytes = b->room_bytes;
    }
    failed = core_run_all(b->store, b->ops, b->count);
    out = failed < 0 ? NULL : PyList_New((Py_ssize_t)b->count);
    if (!out || take_rooms(b, out) < 0)
        more = -1;
    for (int i = 0; i < GET_TRIES_MAX && failed > 0 && more > 0; i++)
        more = read_again(b, i, out);
    if (more < 0)
        Py_CLEAR(out);
    if (out && failed > 0 && any_bad(b, PENSTOCK_MISS)) {
        raise_with(b, PENSTOCK_MISS, out);
        out = NULL;
    }
    return out;
}

/* Each a tuple (offset, length). The list of new objects, which the operations fill. */
static PyObject *ranges_list(struct batch *b, PyObject *ranges)
{
    PyObject *items = items_like_keys(ranges, "ranges", b), *out = NULL;

    if (items)
        out = PyList_New((Py_ssize_t)b->count);
    for (size_t i = 0; out && i < b->count; i++) {
        PyObject *pair = item(items, i), *bytes = NULL;
        uint64_t length;

        if (pair && (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2))
            core_type_error("each of ranges", "a tuple (offset, length)", pair);
        else if (pair && set_range(&b->ops[i], PyTuple_GetItem(pair, 0)) == 0 &&
                 core_number(PyTuple_GetItem(pair, 1), "length", PY_SSIZE_T_MAX, &length) == 0)
            bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
        if (!bytes) {
            Py_CLEAR(out);
            break;
        }
        b->ops[i].data = PyBytes_AsString(bytes);
        b->ops[i].bytes = length;
        if (PyList_SetItem(out, (Py_ssize_t)i, bytes) < 0)
            Py_CLEAR(out);
    }
    Py_XDECREF(items);
    return out;
}

static PyObject *get_ranges(struct batch *b, PyObject *ranges)
{
    PyObject *out = ranges_list(b, ranges);
    int failed = out ? core_run_all(b->store, b->ops, b->count) : -1;

    for (size_t i = 0; failed > 0 && i < b->count; i++) {
        if (b->ops[i].result && PyList_SetItem(out, (Py_ssize_t)i, Py_NewRef(Py_None)) < 0)
            failed = -1;
    }
    if (failed < 0)
        Py_CLEAR(out);
    if (out && failed > 0 && any_bad(b, PENSTOCK_MISS)) {
        raise_with(b, PENSTOCK_MISS, out);
        out = NULL;
    }
    return out;
}

PyObject *core_get_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *out;
    struct batch b;
    bool ranges;

    if (core_args(&get_call, args, count, keywords, given) < 0)
        return NULL;
    ranges = !core_absent(given[GET_RANGES]);
    if (open_with_keys(self, given[GET_KEYS], PENSTOCK_GET, !ranges, &b) < 0)
        return NULL;
    out = ranges ? get_ranges(&b, given[GET_RANGES]) : get_whole(&b);
    batch_close(&b);
    return out;
}
