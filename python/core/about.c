/* SPDX-License-Identifier: Apache-2.0 */
/* about.c: what concerns many keys or the whole store: deleting, figures, memory for transfers; and what is
 * known of one key. */
#include "core.h"

#include <errno.h>

static struct core_store *store_of(PyObject *self)
{
    return (struct core_store *)self;
}

/* ---- one key ---- */

/* Class and depth of a key come with a listing alone. Return: 1 found, 0, -errno. */
static int list_one(struct penstock *handle, const Py_buffer *key, struct penstock_entry *out)
{
    char end[PENSTOCK_KEY_BYTES_MAX + 1] = {0};
    bool longest = key->len >= PENSTOCK_KEY_BYTES_MAX;
    struct penstock_list_options options = {.size = sizeof(options),
                                            .start = key->buf,
                                            .start_bytes = (size_t)key->len,
                                            .end = end,
                                            .end_bytes = longest ? 0 : (size_t)key->len + 1};
    struct penstock_list *list;
    int r;

    memcpy(end, key->buf, longest ? 0 : (size_t)key->len);
    r = penstock_list_open(handle, &options, &list);
    if (r < 0)
        return r;
    r = penstock_list_next(list, out);
    if (r == 1 && (out->key_bytes != (size_t)key->len || memcmp(out->key, key->buf, (size_t)key->len) != 0))
        r = 0; /* the next key, behind one of the greatest length */
    penstock_list_close(list);
    return r;
}

static PyObject *head(struct core_store *store, const Py_buffer *key)
{
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX];
    struct penstock_op op = {.attrs = attrs, .attr_bytes = sizeof(attrs)};
    struct penstock_entry entry = {0};
    int r;

    penstock_prep(&op, PENSTOCK_STAT_KEY, key->buf, (size_t)key->len);
    if (core_run(store, &op) != 0)
        return core_raise_op(&op);
    Py_BEGIN_ALLOW_THREADS;
    r = list_one(store->handle, key, &entry);
    Py_END_ALLOW_THREADS;
    if (r <= 0)
        return core_raise(r < 0 ? r : PENSTOCK_MISS, key);
    if (entry.depth == PENSTOCK_DEPTH_NONE)
        return PyObject_CallFunction(core_classes.KeyStat, "KKy#OO", op.value_bytes, op.generation, attrs,
                                     (Py_ssize_t)op.attr_bytes, entry.cache ? Py_True : Py_False, Py_None);
    return PyObject_CallFunction(core_classes.KeyStat, "KKy#Oi", op.value_bytes, op.generation, attrs,
                                 (Py_ssize_t)op.attr_bytes, entry.cache ? Py_True : Py_False,
                                 (int)entry.depth);
}

PyObject *core_head(PyObject *self, PyObject *key)
{
    struct core_store *store = store_of(self);
    PyObject *out = NULL;
    Py_buffer borrowed;

    if (core_borrow_key(key, "key", &borrowed) < 0)
        return NULL;
    if (core_store_use(store)) {
        out = head(store, &borrowed);
        core_store_leave(store);
    }
    core_return(&borrowed);
    return out;
}

/* ---- deleting ---- */

static PyObject *counted(int r, uint64_t number)
{
    return r == 0 ? PyLong_FromUnsignedLongLong(number) : core_raise(r, NULL);
}

PyObject *core_delete_prefix(PyObject *self, PyObject *prefix)
{
    struct penstock *handle;
    PyObject *out = NULL;
    uint64_t deleted = 0;
    Py_buffer borrowed;
    int r;

    if (core_borrow_key(prefix, "prefix", &borrowed) < 0)
        return NULL;
    handle = core_store_use(store_of(self));
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_delete_prefix(handle, borrowed.buf, (size_t)borrowed.len, &deleted);
        Py_END_ALLOW_THREADS;
        out = counted(r, deleted);
        core_store_leave(store_of(self));
    }
    core_return(&borrowed);
    return out;
}

static struct core_call range_call = {"delete_range", 1, 2, {"start", "end"}, {NULL}};

PyObject *core_delete_range(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    struct penstock *handle;
    Py_buffer start, end = {0};
    uint64_t deleted = 0;
    int r;

    if (core_args(&range_call, args, count, keywords, given) < 0 ||
        core_borrow_prefix(given[0], "start", &start) < 0)
        return NULL;
    handle = core_borrow_prefix(given[1], "end", &end) == 0 ? core_store_use(store_of(self)) : NULL;
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_delete_range(handle, start.buf, (size_t)start.len, end.buf, (size_t)end.len, &deleted);
        Py_END_ALLOW_THREADS;
        out = counted(r, deleted);
        core_store_leave(store_of(self));
    }
    core_return(&start);
    core_return(&end);
    return out;
}

PyObject *core_clear(PyObject *self, PyObject *unused)
{
    struct penstock *handle = core_store_use(store_of(self));
    uint64_t remaining = 0;
    int r;

    (void)unused;
    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_clear(handle, &remaining);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return counted(r, remaining);
}

/* ---- the store ---- */

#define FIGURES(X)                                                                                           \
    X(page_bytes)                                                                                            \
    X(pages)                                                                                                 \
    X(pages_used)                                                                                            \
    X(arenas)                                                                                                \
    X(shards)                                                                                                \
    X(keys)                                                                                                  \
    X(value_bytes)                                                                                           \
    X(cache_keys)                                                                                            \
    X(pinned)                                                                                                \
    X(puts)                                                                                                  \
    X(gets)                                                                                                  \
    X(hits)                                                                                                  \
    X(misses)                                                                                                \
    X(deletes)                                                                                               \
    X(evictions)                                                                                             \
    X(evicted_bytes)                                                                                         \
    X(moved)                                                                                                 \
    X(no_space)                                                                                              \
    X(slab_pages)                                                                                            \
    X(slab_bytes)                                                                                            \
    X(index_bytes)                                                                                           \
    X(rss_anon_bytes)                                                                                        \
    X(sessions)                                                                                              \
    X(uptime_ms)                                                                                             \
    X(pinned_bytes)                                                                                          \
    X(reservations)                                                                                          \
    X(reservation_bytes)                                                                                     \
    X(waits)                                                                                                 \
    X(watches)                                                                                               \
    X(ssd_keys)                                                                                              \
    X(ssd_bytes)                                                                                             \
    X(demotions)                                                                                             \
    X(demoted_bytes)                                                                                         \
    X(promotions)                                                                                            \
    X(fetches)                                                                                               \
    X(fetched_bytes)                                                                                         \
    X(ssd_corrupt)                                                                                           \
    X(ssd_errors)                                                                                            \
    X(ssd_hits)                                                                                              \
    X(ssd_capacity_bytes)                                                                                    \
    X(ssd_live_bytes)                                                                                        \
    X(ssd_appended_bytes)                                                                                    \
    X(ssd_written_bytes)                                                                                     \
    X(ssd_moved_bytes)                                                                                       \
    X(ssd_reclaimed_bytes)                                                                                   \
    X(restored_keys)                                                                                         \
    X(restored_dropped)                                                                                      \
    X(restored_ms)                                                                                           \
    X(nodes)                                                                                                 \
    X(pool_master_requests)                                                                                  \
    X(pool_node_requests)                                                                                    \
    X(pool_located)                                                                                          \
    X(pool_existed)                                                                                          \
    X(pool_put_bytes)                                                                                        \
    X(pool_retries)                                                                                          \
    X(pool_failovers)                                                                                        \
    X(refused_secret)                                                                                        \
    X(refused_version)                                                                                       \
    X(refused_busy)                                                                                          \
    X(refused_other)                                                                                         \
    X(malformed)                                                                                             \
    X(copies_asked)                                                                                          \
    X(refused_plain)                                                                                         \
    X(refused_tls)                                                                                           \
    X(refused_certificate)                                                                                   \
    X(refused_expired)                                                                                       \
    X(refused_replayed)                                                                                      \
    X(refused_by_client)                                                                                     \
    X(forbidden)                                                                                             \
    X(hbm_keys)                                                                                              \
    X(hbm_bytes)                                                                                             \
    X(hbm_capacity_bytes)                                                                                    \
    X(hbm_used_bytes)                                                                                        \
    X(hbm_promotions)                                                                                        \
    X(hbm_demotions)                                                                                         \
    X(hbm_hits)                                                                                              \
    X(hbm_errors)

static PyObject *figures_dict(const struct penstock_stat *stat)
{
    PyObject *out = PyDict_New();

#define X(name)                                                                                              \
    if (out) {                                                                                               \
        PyObject *number = PyLong_FromUnsignedLongLong(stat->name);                                          \
        if (!number || PyDict_SetItemString(out, #name, number) < 0)                                         \
            Py_CLEAR(out);                                                                                   \
        Py_XDECREF(number);                                                                                  \
    }
    FIGURES(X)
#undef X
    return out;
}

PyObject *core_figures(PyObject *self, PyObject *unused)
{
    struct penstock *handle = core_store_use(store_of(self));
    struct penstock_stat stat = {.size = sizeof(stat)};
    int r;

    (void)unused;
    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_stat(handle, &stat);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return r == 0 ? figures_dict(&stat) : core_raise(r, NULL);
}

PyObject *core_call(PyObject *self, int (*call)(struct penstock *store))
{
    struct penstock *handle = core_store_use(store_of(self));
    int r;

    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = call(handle);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return r == 0 ? Py_NewRef(Py_None) : core_raise(r, NULL);
}

PyObject *core_flush(PyObject *self, PyObject *unused)
{
    (void)unused;
    return core_call(self, penstock_flush);
}

PyObject *core_ping(PyObject *self, PyObject *unused)
{
    struct penstock *handle = core_store_use(store_of(self));
    uint64_t ns = 0;
    int r;

    (void)unused;
    if (!handle)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_ping(handle, &ns);
    Py_END_ALLOW_THREADS;
    core_store_leave(store_of(self));
    return r == 0 ? PyFloat_FromDouble((double)ns / 1e9) : core_raise(r, NULL);
}

/* ---- memory ---- */

static PyObject *do_register(PyObject *self, PyObject *arg, bool add)
{
    struct core_data data;
    struct penstock *handle;
    PyObject *out = NULL;
    int r;

    if (PyList_Check(arg)) {
        core_type_error("buffer", "one run of memory", arg);
        return NULL;
    }
    if (core_borrow_data(arg, "buffer", true, &data) < 0)
        return NULL;
    handle = core_store_use(store_of(self));
    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = add ? penstock_register(handle, data.whole.buf, data.bytes)
                : penstock_deregister(handle, data.whole.buf);
        Py_END_ALLOW_THREADS;
        out = r == 0 ? Py_NewRef(Py_None) : core_raise(r, NULL);
        core_store_leave(store_of(self));
    }
    core_return_data(&data);
    return out;
}

PyObject *core_register(PyObject *self, PyObject *buffer)
{
    return do_register(self, buffer, true);
}

PyObject *core_deregister(PyObject *self, PyObject *buffer)
{
    return do_register(self, buffer, false);
}
