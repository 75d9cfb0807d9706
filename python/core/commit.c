/* SPDX-License-Identifier: Apache-2.0 */
/* commit.c: several keys at once: all of a commit is applied, or nothing. */
#include "core.h"

#include <errno.h>

/* The operations, and what they borrow. */
struct commit {
    size_t count;
    struct penstock_op ops[PENSTOCK_COMMIT_OPS_MAX];
    Py_buffer keys[PENSTOCK_COMMIT_OPS_MAX];
    struct core_data values[PENSTOCK_COMMIT_OPS_MAX];
};

static void commit_free(struct commit *c)
{
    for (size_t i = 0; i < c->count; i++) {
        core_return(&c->keys[i]);
        core_return_data(&c->values[i]);
    }
    PyMem_Free(c);
}

/* Each a tuple (key, value or None, generation or None): a put; without a value a deletion; or, where
 * @checks, that the key has this generation. */
static int add_op(struct commit *c, PyObject *item, bool checks)
{
    struct penstock_op *op = &c->ops[c->count];
    Py_buffer *key = &c->keys[c->count];
    PyObject *value, *generation;
    enum penstock_code code;

    if (!PyTuple_Check(item) || PyTuple_Size(item) != 3)
        return core_type_error("each change and check", "a tuple (key, value, generation)", item);
    value = PyTuple_GetItem(item, 1);
    generation = PyTuple_GetItem(item, 2);
    code = checks ? PENSTOCK_CHECK : value == Py_None ? PENSTOCK_DELETE : PENSTOCK_PUT;
    if (core_borrow_key(PyTuple_GetItem(item, 0), "key", key) < 0)
        return -1;
    c->count++;
    penstock_prep(op, code, key->buf, (size_t)key->len);
    if (code == PENSTOCK_PUT) {
        if (core_borrow_data(value, "value", false, &c->values[c->count - 1]) < 0)
            return -1;
        if (core_set_data(op, &c->values[c->count - 1], false) < 0)
            return -1;
    }
    if (generation == Py_None)
        return 0;
    op->flags = code == PENSTOCK_CHECK ? 0 : PENSTOCK_IF_GENERATION;
    return core_number(generation, "generation", UINT64_MAX, &op->if_generation);
}

static int add_ops(struct commit *c, PyObject *list, bool checks)
{
    PyObject *items = core_items(list, checks ? "checks" : "changes");
    int r = items ? 0 : -1;

    for (Py_ssize_t i = 0; r == 0 && i < PyTuple_Size(items); i++) {
        if (c->count < PENSTOCK_COMMIT_OPS_MAX)
            r = add_op(c, PyTuple_GetItem(items, i), checks);
        else
            r = -1;
        if (r < 0 && !PyErr_Occurred())
            PyErr_Format(core_classes.Invalid, "a commit of more than %d keys", PENSTOCK_COMMIT_OPS_MAX);
    }
    Py_XDECREF(items);
    return r;
}

/* The generations of all puts, in their order. */
static PyObject *generations(const struct commit *c)
{
    PyObject *out = PyList_New(0);

    for (size_t i = 0; out && i < c->count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(c->ops[i].generation);

        if (!number || (c->ops[i].code == PENSTOCK_PUT && PyList_Append(out, number) < 0))
            Py_CLEAR(out);
        Py_XDECREF(number);
    }
    return out;
}

static PyObject *run(struct core_store *store, struct commit *c)
{
    struct penstock *handle = core_store_use(store);
    PyObject *out = NULL;
    int r;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_commit(handle, c->ops, c->count);
    Py_END_ALLOW_THREADS;
    for (size_t i = 0; r != 0 && i < c->count && !PyErr_Occurred(); i++) {
        if (c->ops[i].result == r)
            out = core_raise_batch(c->ops, c->count, 0);
    }
    if (r == 0)
        out = generations(c);
    else if (!PyErr_Occurred())
        core_raise(r, NULL);
    core_store_leave(store);
    return out;
}

/* commit_ops(changes: list, checks: list) -> list of the puts' generations */
PyObject *core_commit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct commit *c;
    PyObject *out = NULL;

    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "commit_ops() takes two lists");
        return NULL;
    }
    c = PyMem_Calloc(1, sizeof(*c));
    if (!c)
        return PyErr_NoMemory();
    if (add_ops(c, args[0], false) == 0 && add_ops(c, args[1], true) == 0)
        out = run((struct core_store *)self, c);
    commit_free(c);
    return out;
}
