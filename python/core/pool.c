/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: the nodes of a pool, and what is said to its master about them. */
#include "core.h"

enum { NODES_MAX = 8192, NODE_ID_BYTES = 16 };

static struct core_store *store_of(PyObject *self)
{
    return (struct core_store *)self;
}

static PyObject *list_of(const struct penstock_pool_node *nodes, size_t count)
{
    PyObject *out = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; out && i < count; i++) {
        const struct penstock_pool_node *node = &nodes[i];
        PyObject *one = PyObject_CallFunction(
            core_classes.PoolNode, "y#ssIIIKKK", (const char *)node->id, (Py_ssize_t)sizeof(node->id),
            node->address, penstock_pool_node_state(node), node->member, node->primaries, node->copies,
            (unsigned long long)node->keys_left, (unsigned long long)node->capacity_bytes,
            (unsigned long long)node->used_bytes);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

PyObject *core_nodes(PyObject *self, PyObject *unused)
{
    struct penstock_pool_node *nodes = PyMem_Calloc(NODES_MAX, sizeof(*nodes));
    struct penstock *handle;
    PyObject *out = NULL;
    size_t count = NODES_MAX;
    int r;

    (void)unused;
    if (!nodes)
        return PyErr_NoMemory();
    handle = core_store_use(store_of(self));
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_pool_nodes(handle, nodes, &count);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? list_of(nodes, count < NODES_MAX ? count : NODES_MAX) : core_raise(r, NULL);
        core_store_leave(store_of(self));
    }
    PyMem_Free(nodes);
    return out;
}

static PyObject *drain(PyObject *self, const uint8_t id[NODE_ID_BYTES], bool drains)
{
    struct penstock *handle = core_store_use(store_of(self));
    int r;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_pool_drain(handle, id, drains);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return r == 0 ? Py_NewRef(Py_None) : core_raise(r, NULL);
}

static struct core_call drain_call = {"drain_id", 2, 2, {"node_id", "drains"}, {NULL}};

PyObject *core_drain_id(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    Py_buffer id;
    bool drains;

    if (core_args(&drain_call, args, count, keywords, given) < 0 || core_flag(given[1], &drains) < 0 ||
        PyObject_GetBuffer(given[0], &id, PyBUF_SIMPLE) < 0)
        return NULL;
    if (id.len == NODE_ID_BYTES)
        out = drain(self, id.buf, drains);
    else
        PyErr_Format(PyExc_ValueError, "node_id has %zd bytes, not %d", id.len, NODE_ID_BYTES);
    PyBuffer_Release(&id);
    return out;
}

PyObject *core_forgive(PyObject *self, PyObject *unused)
{
    (void)unused;
    return core_call(self, penstock_pool_forgive);
}
