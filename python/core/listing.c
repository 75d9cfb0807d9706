/* SPDX-License-Identifier: Apache-2.0 */
/* listing.c: keys in order, fetched as they are asked for. */
#include "core.h"

struct core_listing {
    PyObject ob_base;
    struct core_store *store; /* used until the end; then NULL */
    struct penstock_list *list;
    bool running; /* a thread is in the library */
};

static struct core_listing *listing_of(PyObject *self)
{
    return (struct core_listing *)self;
}

static void end_list(struct core_listing *listing)
{
    struct core_store *store = listing->store;
    struct penstock_list *list = listing->list;

    if (!store)
        return;
    core_assert(list && !listing->running);
    listing->store = NULL;
    listing->list = NULL;
    penstock_list_close(list); /* frees memory, asks nobody */
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

enum { LIST_PREFIX, LIST_START, LIST_END, LIST_BOUNDS };
static struct core_call list_call = {"list", 0, 1, {"prefix", "start", "end"}, {NULL}};

static PyObject *open_list(PyObject *self, const Py_buffer *bounds)
{
    struct penstock_list_options options = {
        .size = sizeof(options),
        .prefix = bounds[LIST_PREFIX].buf,
        .prefix_bytes = (size_t)bounds[LIST_PREFIX].len,
        .start = bounds[LIST_START].buf,
        .start_bytes = (size_t)bounds[LIST_START].len,
        .end = bounds[LIST_END].buf,
        .end_bytes = (size_t)bounds[LIST_END].len,
    };
    struct core_store *store = (struct core_store *)self;
    struct core_listing *listing = listing_of(PyType_GenericAlloc(core_classes.Listing, 0));
    struct penstock *handle = listing ? core_store_use(store) : NULL;
    int r;

    if (handle) {
        Py_BEGIN_ALLOW_THREADS;
        r = penstock_list_open(handle, &options, &listing->list);
        Py_END_ALLOW_THREADS;
        if (r == 0) {
            listing->store = (struct core_store *)Py_NewRef(self);
            return (PyObject *)listing;
        }
        core_raise(r, NULL);
        core_store_leave(store);
    }
    Py_XDECREF((PyObject *)listing);
    return NULL;
}

PyObject *core_list_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    Py_buffer bounds[LIST_BOUNDS] = {{0}};
    PyObject *given[CORE_ARGS_MAX], *out = NULL;
    bool ok = core_args(&list_call, args, count, keywords, given) == 0;

    for (int i = 0; ok && i < LIST_BOUNDS; i++)
        ok = core_borrow_prefix(given[i], list_call.names[i], &bounds[i]) == 0;
    if (ok)
        out = open_list(self, bounds);
    for (int i = 0; i < LIST_BOUNDS; i++)
        core_return(&bounds[i]);
    return out;
}

static PyObject *entry_object(const struct penstock_entry *entry)
{
    PyObject *cache = entry->cache ? Py_True : Py_False;

    if (entry->depth == PENSTOCK_DEPTH_NONE)
        return PyObject_CallFunction(core_classes.Entry, "y#KKOO", entry->key, (Py_ssize_t)entry->key_bytes,
                                     entry->value_bytes, entry->generation, cache, Py_None);
    return PyObject_CallFunction(core_classes.Entry, "y#KKOi", entry->key, (Py_ssize_t)entry->key_bytes,
                                 entry->value_bytes, entry->generation, cache, (int)entry->depth);
}

static PyObject *listing_next(PyObject *self)
{
    struct core_listing *listing = listing_of(self);
    struct penstock_entry entry;
    PyObject *out = NULL;
    int r;

    if (listing->running) {
        PyErr_SetString(PyExc_ValueError, "another thread is taking this listing's next entry");
        return NULL;
    }
    if (!listing->store)
        return NULL;
    listing->running = true;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_list_next(listing->list, &entry);
    Py_END_ALLOW_THREADS;
    if (r == 1)
        out = entry_object(&entry); /* whose key is the listing's until the next one */
    listing->running = false;
    if (r < 0)
        core_raise(r, NULL);
    else if (r == 0)
        end_list(listing);
    return out;
}

static PyObject *listing_repr(PyObject *self)
{
    return core_repr("Listing", listing_of(self)->store, NULL);
}

static int listing_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)listing_of(self)->store);
    return 0;
}

static void listing_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    end_list(listing_of(self));
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)listing_dealloc},   {Py_tp_repr, (void *)listing_repr},
    {Py_tp_traverse, (void *)listing_traverse}, {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)listing_next},     {0, NULL},
};

PyType_Spec core_listing_spec = {
    .name = "penstock._core.Listing",
    .basicsize = sizeof(struct core_listing),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
