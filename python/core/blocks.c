/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: what engines hold in memory of their own, said to a pool's master and asked of it. */
#include "core.h"

enum { NODES_MAX = 64 };

/* Names as the library takes them, borrowed. */
struct names {
    size_t count;
    Py_buffer *buffers;
    struct iovec *iov;
};

static void names_fini(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        core_return(&names->buffers[i]);
    PyMem_Free(names->buffers);
    PyMem_Free(names->iov);
}

static int names_init(PyObject *arg, struct names *names)
{
    PyObject *items = core_items(arg, "names");
    Py_ssize_t count = items ? PyTuple_Size(items) : -1;
    int r = count < 0 ? -1 : 0;

    *names = (struct names){0};
    if (r == 0) {
        names->buffers = PyMem_Calloc((size_t)count + 1, sizeof(*names->buffers));
        names->iov = PyMem_Calloc((size_t)count + 1, sizeof(*names->iov));
        if (!names->buffers || !names->iov) {
            PyErr_NoMemory();
            r = -1;
        }
    }
    for (Py_ssize_t i = 0; r == 0 && i < count; i++) {
        r = core_borrow_key(PyTuple_GetItem(items, i), "name", &names->buffers[i]);
        if (r == 0) {
            names->iov[i] = (struct iovec){names->buffers[i].buf, (size_t)names->buffers[i].len};
            names->count++;
        }
    }
    Py_XDECREF(items);
    if (r < 0)
        names_fini(names);
    return r;
}

/* ---- what a member holds ---- */

enum { OF_NODE, OF_TIER, OF_NAMES };
enum { NODE_ID_BYTES = 16, TIER_MAX = PENSTOCK_BLOCK_TIERS - 1 };

static int holder_of(PyObject *const *given, uint8_t id[NODE_ID_BYTES], uint64_t *tier)
{
    Py_buffer bytes;

    if (!PyObject_CheckBuffer(given[OF_NODE]))
        return core_type_error("node_id", "bytes-like", given[OF_NODE]);
    if (core_number(given[OF_TIER], "tier", TIER_MAX, tier) < 0 ||
        PyObject_GetBuffer(given[OF_NODE], &bytes, PyBUF_SIMPLE) < 0)
        return -1;
    if (bytes.len == NODE_ID_BYTES)
        memcpy(id, bytes.buf, NODE_ID_BYTES);
    else
        PyErr_Format(PyExc_ValueError, "node_id has %zd bytes, not %d", bytes.len, NODE_ID_BYTES);
    PyBuffer_Release(&bytes);
    return PyErr_Occurred() ? -1 : 0;
}

static struct core_call report_call = {"report_blocks", 3, 3, {"node_id", "tier", "names"}, {NULL}};

PyObject *core_report_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = (struct core_store *)self;
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    uint8_t id[NODE_ID_BYTES];
    struct penstock *handle;
    struct names names;
    size_t refused = 0;
    uint64_t tier = 0;
    int r;

    if (core_args(&report_call, args, count, keywords, given) < 0 || holder_of(given, id, &tier) < 0 ||
        names_init(given[OF_NAMES], &names) < 0)
        return NULL;
    handle = core_store_use(store);
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_blocks_report(handle, id, (int)tier, names.iov, names.count, &refused);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? PyLong_FromSize_t(refused) : core_raise(r, NULL);
        core_store_leave(store);
    }
    names_fini(&names);
    return out;
}

static struct core_call revoke_call = {"revoke_blocks", 2, 3, {"node_id", "tier", "names"}, {NULL}};

PyObject *core_revoke_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_store *store = (struct core_store *)self;
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    uint8_t id[NODE_ID_BYTES];
    struct names names = {0};
    struct penstock *handle;
    uint64_t tier = 0;
    bool all;
    int r;

    if (core_args(&revoke_call, args, count, keywords, given) < 0 || holder_of(given, id, &tier) < 0)
        return NULL;
    all = core_absent(given[OF_NAMES]);
    if (!all && names_init(given[OF_NAMES], &names) < 0)
        return NULL;
    handle = core_store_use(store);
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = all ? penstock_blocks_revoke_tier(handle, id, (int)tier)
                : penstock_blocks_revoke(handle, id, (int)tier, names.iov, names.count);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? Py_NewRef(Py_None) : core_raise(r, NULL);
        core_store_leave(store);
    }
    names_fini(&names);
    return out;
}

/* ---- who has what ---- */

static PyObject *nodes_list(const struct penstock_block_node *nodes, const uint8_t *tiers, size_t node_count,
                            size_t name_count)
{
    PyObject *out = PyList_New((Py_ssize_t)node_count);

    for (size_t i = 0; out && i < node_count; i++) {
        PyObject *one = Py_BuildValue("(y#sky#)", nodes[i].id, (Py_ssize_t)sizeof(nodes[i].id),
                                      nodes[i].address, (unsigned long)nodes[i].block_count,
                                      tiers + i * name_count, (Py_ssize_t)name_count);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *match(struct core_store *store, const struct names *names, bool hit)
{
    struct penstock_block_node *nodes = PyMem_Calloc(NODES_MAX, sizeof(*nodes));
    uint8_t *tiers = PyMem_Calloc(NODES_MAX, names->count + 1);
    struct penstock *handle = nodes && tiers ? core_store_use(store) : NULL;
    size_t node_count = NODES_MAX;
    PyObject *out = NULL;
    int r;

    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_blocks_match(handle, names->iov, names->count, hit, nodes, tiers, &node_count);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? nodes_list(nodes, tiers, node_count, names->count) : core_raise(r, NULL);
        core_store_leave(store);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_Free(nodes);
    PyMem_Free(tiers);
    return out;
}

static struct core_call match_call = {"match_blocks", 1, 1, {"names", "hit"}, {NULL}};

PyObject *core_match_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *out;
    struct names names;
    bool hit;

    if (core_args(&match_call, args, count, keywords, given) < 0 || core_flag(given[1], &hit) < 0 ||
        names_init(given[0], &names) < 0)
        return NULL;
    out = match((struct core_store *)self, &names, hit);
    names_fini(&names);
    return out;
}

static PyObject *numbers_list(const uint32_t *numbers, size_t count)
{
    PyObject *out = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; out && i < count; i++) {
        PyObject *one = PyLong_FromUnsignedLong(numbers[i]);

        if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

PyObject *core_block_hits(PyObject *self, PyObject *arg)
{
    struct core_store *store = (struct core_store *)self;
    struct penstock *handle;
    PyObject *out = NULL;
    struct names names;
    uint32_t *hits;
    int r;

    if (names_init(arg, &names) < 0)
        return NULL;
    hits = PyMem_Calloc(names.count + 1, sizeof(*hits));
    handle = hits ? core_store_use(store) : NULL;
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_blocks_hits(handle, names.iov, names.count, hits);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? numbers_list(hits, names.count) : core_raise(r, NULL);
        core_store_leave(store);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    PyMem_Free(hits);
    names_fini(&names);
    return out;
}
