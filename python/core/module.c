/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: the module: its types, the classes that Python wrote, and which result raises which error. */
#include "core.h"

#include <errno.h>

struct core_classes core_classes;

/* ---- errors ---- */

static PyObject *class_of(int result)
{
    switch (result) {
    case PENSTOCK_MISS:
        return core_classes.NotFound;
    case PENSTOCK_EXISTS:
    case PENSTOCK_OWNED:
        return core_classes.Exists;
    case PENSTOCK_STALE:
        return core_classes.Stale;
    case PENSTOCK_BUSY:
        return core_classes.Busy;
    case PENSTOCK_UNKNOWN:
        return core_classes.Unknown;
    case PENSTOCK_INCOMPLETE:
        return core_classes.Incomplete;
    case PENSTOCK_LOST:
        return core_classes.Lost;
    case -ENOSPC:
        return core_classes.NoSpace;
    case -EDQUOT:
    case -EMFILE:
        return core_classes.LimitReached;
    case -EACCES:
    case -EPERM:
        return core_classes.NotAllowed;
    case -EBADMSG:
        return core_classes.Corrupt;
    case -ETIMEDOUT:
        return core_classes.TimedOut;
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -EREMCHG: /* no master leads */
    case -ENOENT:
    case -EPIPE:
    case -EPROTO:
    case -EPROTONOSUPPORT:
    case -ESTALE:
        return core_classes.Unreachable;
    case -EOPNOTSUPP:
    case -ELIBACC: /* no UCX here */
    case -ELIBBAD: /* one that cannot be used */
        return core_classes.Unsupported;
    case -EINVAL:
    case -ENAMETOOLONG:
    case -ERANGE:
    case -EFBIG:
    case -EMSGSIZE:
    case -ENOBUFS:
    case -E2BIG:
    case -ENODATA:
        return core_classes.Invalid;
    case -ECHILD:
        return core_classes.ForkError;
    case -ENOMEM:
        return PyExc_MemoryError;
    default:
        return core_classes.Error;
    }
}

/* The library explains the faults of a call, of many operations' only the last one's; what is said here of a
 * fault or an outcome names the key. */
static PyObject *text_of(int result, const void *key, size_t key_bytes, bool explained)
{
    PyObject *name, *text;

    explained = explained && (result < 0 || result == PENSTOCK_UNKNOWN || result == PENSTOCK_BUSY);
    if (explained || !key)
        return PyUnicode_FromString(explained ? penstock_error() : penstock_result_text(result));
    name =
        PyUnicode_Decode(key, (Py_ssize_t)(key_bytes < 100 ? key_bytes : 100), "utf-8", "backslashreplace");
    text = name ? PyUnicode_FromFormat("key '%U': %s", name, penstock_result_text(result)) : NULL;
    Py_XDECREF(name);
    return text;
}

static int set_number(PyObject *error, const char *name, PyObject *number)
{
    int r = number ? PyObject_SetAttrString(error, name, number) : -1;

    Py_XDECREF(number);
    return r;
}

/* A new error of @result, or NULL with another exception. */
static PyObject *error_of(int result, const void *key, size_t key_bytes, bool explained)
{
    PyObject *text = text_of(result, key, key_bytes, explained);
    PyObject *error = text ? PyObject_CallFunctionObjArgs(class_of(result), text, NULL) : NULL;

    core_assert(result != 0);
    Py_XDECREF(text);
    if (error && class_of(result) != PyExc_MemoryError &&
        set_number(error, "result", PyLong_FromLong(result)) < 0)
        Py_CLEAR(error);
    return error;
}

static PyObject *raise(PyObject *error)
{
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *core_raise(int result, const Py_buffer *key)
{
    return raise(error_of(result, key ? key->buf : NULL, key ? (size_t)key->len : 0, true));
}

static PyObject *error_of_op(const struct penstock_op *op, bool explained)
{
    PyObject *error = error_of(op->result, op->key, op->key_bytes, explained);
    bool in_the_way = op->result == PENSTOCK_EXISTS || op->result == PENSTOCK_STALE;

    if (error && in_the_way &&
        set_number(error, "generation", PyLong_FromUnsignedLongLong(op->generation)) < 0)
        Py_CLEAR(error);
    return error;
}

PyObject *core_raise_op(const struct penstock_op *op)
{
    return raise(error_of_op(op, true));
}

PyObject *core_error_of(const struct penstock_op *op)
{
    return error_of_op(op, false);
}

PyObject *core_raise_batch(const struct penstock_op *ops, size_t count, int but)
{
    PyObject *results = PyList_New((Py_ssize_t)count), *error = NULL;
    bool ok = results;

    for (size_t i = 0; ok && i < count; i++) {
        PyObject *number = PyLong_FromLong(ops[i].result);

        ok = number && PyList_SetItem(results, (Py_ssize_t)i, number) == 0;
        if (ok && !error && ops[i].result != 0 && ops[i].result != but) {
            error = error_of_op(&ops[i], false);
            ok = error;
        }
    }
    core_assert(!ok || error);
    if (ok && PyObject_SetAttrString(error, "results", results) < 0)
        ok = PyErr_ExceptionMatches(PyExc_AttributeError); /* MemoryError takes none */
    if (!ok)
        Py_CLEAR(error);
    Py_XDECREF(results);
    return raise(error);
}

void core_error_says(const char *name, PyObject *value)
{
    PyObject *type, *error, *trace;

    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    core_assert(error);
    if (value && PyObject_SetAttrString(error, name, value) < 0)
        PyErr_Clear(); /* MemoryError takes none */
    Py_XDECREF(value);
    PyErr_Restore(type, error, trace);
}

/* ---- the module ---- */

void core_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc give = (freefunc)PyType_GetSlot(type, Py_tp_free);

    give(self);
    Py_DECREF(type);
}

PyObject *core_repr(const char *name, struct core_store *store, const Py_buffer *key)
{
    PyObject *url, *text = NULL, *out = NULL;

    if (!store)
        return PyUnicode_FromFormat("<penstock.%s, ended>", name);
    url = PyObject_GetAttrString((PyObject *)store, "url");
    if (url && key)
        text = PyUnicode_Decode(key->buf, key->len < 100 ? key->len : 100, "utf-8", "backslashreplace");
    if (text)
        out = PyUnicode_FromFormat("<penstock.%s '%U' of %S>", name, text, url);
    else if (url && !key)
        out = PyUnicode_FromFormat("<penstock.%s of %S>", name, url);
    Py_XDECREF(text);
    Py_XDECREF(url);
    return out;
}

static int take_classes(void)
{
    PyObject *errors = PyImport_ImportModule("penstock.errors");
    PyObject *records = errors ? PyImport_ImportModule("penstock.records") : NULL;
    bool ok = records;

#define X(name) ok = ok && (core_classes.name = PyObject_GetAttrString(errors, #name));
    CORE_ERRORS(X)
#undef X
#define X(name) ok = ok && (core_classes.name = PyObject_GetAttrString(records, #name));
    CORE_RECORDS(X)
#undef X
    Py_XDECREF(errors);
    Py_XDECREF(records);
    return ok ? 0 : -1;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

static int module_exec(PyObject *module)
{
    const struct {
        PyType_Spec *spec;
        PyTypeObject **out;
    } types[] = {
        {&core_store_spec, &core_classes.Store},     {&core_view_spec, &core_classes.View},
        {&core_listing_spec, &core_classes.Listing}, {&core_stream_spec, &core_classes.Stream},
        {&core_watch_spec, &core_classes.Watch},     {&core_node_spec, &core_classes.Node},
        {&core_queue_spec, &core_classes.Queue},     {&core_reservation_spec, &core_classes.Reservation},
    };

    /* The types are the process's: a second interpreter would take the first one's away. */
    if (core_classes.Store) {
        PyErr_SetString(PyExc_ImportError, "penstock: one interpreter of a process may import it");
        return -1;
    }
    if (take_classes() < 0)
        return -1;
    for (size_t i = 0; i < core_count_of(types); i++) {
        if (add_type(module, types[i].spec, types[i].out) < 0)
            return -1;
    }
    return PyModule_AddIntConstant(module, "KEY_BYTES_MAX", PENSTOCK_KEY_BYTES_MAX) < 0 ||
                   PyModule_AddIntConstant(module, "ATTR_BYTES_MAX", PENSTOCK_ATTR_BYTES_MAX) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static PyMethodDef methods[] = {
    {"_trace", core_trace_set, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "The extension under penstock: use the package.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module);
}
