/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: to which trace a call belongs. Python knows it, by context (penstock.tracing), and the library by
 * thread; so each call that begins asks the one and tells the other, once a program has traces at all.
 */
#include "core.h"
#include "docs.h"

static PyObject *current; /* penstock.tracing.current; NULL: nobody has said that there are traces */

/* Whether the program has OpenTelemetry, which is not imported for this. A look costs a small get a fifth of
 * its time, so there is one only when modules came or went since the last. */
static bool has_opentelemetry(void)
{
    static Py_ssize_t looked_at;
    PyObject *modules = PyImport_GetModuleDict();
    Py_ssize_t count = PyDict_Size(modules);

    if (count == looked_at)
        return false;
    looked_at = count;
    return PyDict_GetItemString(modules, "opentelemetry.trace") != NULL;
}

static PyObject *import_current(void)
{
    PyObject *module = PyImport_ImportModule("penstock.tracing");
    PyObject *function = module ? PyObject_GetAttrString(module, "current") : NULL;

    Py_XDECREF(module);
    return function;
}

void core_trace(void)
{
    PyObject *text;

    if (!current && !has_opentelemetry())
        return;
    if (!current)
        current = import_current();
    text = current ? PyObject_CallNoArgs(current) : NULL;
    if (!text || text == Py_None || penstock_trace(PyUnicode_AsUTF8AndSize(text, NULL)) < 0)
        (void)penstock_trace(NULL);
    Py_XDECREF(text);
    PyErr_Clear(); /* a call does what it is to do, traced or not */
}

PyObject *core_trace_set(PyObject *self, PyObject *text)
{
    const char *given = text == Py_None ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    int r;

    (void)self;
    if (!given && PyErr_Occurred())
        return NULL;
    if (!current)
        current = import_current();
    if (!current)
        return NULL;
    r = penstock_trace(given);
    return r < 0 ? core_raise(r, NULL) : Py_NewRef(Py_None);
}
