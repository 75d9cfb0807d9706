/* SPDX-License-Identifier: Apache-2.0 */
/* node.c: a node served from within this process, on threads of its own, which know nothing of Python. */
#include "core.h"
#include "docs.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

struct core_node {
    PyObject ob_base;
    struct penstock_node *handle;
    pid_t pid;    /* whose threads they are */
    int log_fd;   /* lines go there; -1: nowhere */
    bool opening; /* by a thread, now */
};

static struct core_node *node_of(PyObject *self)
{
    return (struct core_node *)self;
}

static void write_line(void *ctx, const char *line)
{
    char text[LINE_BYTES];
    size_t bytes = strlen(line) < sizeof(text) ? strlen(line) : sizeof(text) - 1;
    ssize_t unused;

    for (size_t i = 0; i < bytes; i++) /* what is quoted in it makes no line of its own */
        text[i] = (unsigned char)line[i] < ' ' ? '?' : line[i];
    text[bytes++] = '\n';
    unused = write(((struct core_node *)ctx)->log_fd, text, bytes);
    (void)unused; /* a node does not stop for its log */
}

/* The settings as the library takes them, to be freed; they live as long as @settings. */
static const char **texts_of(PyObject *settings)
{
    Py_ssize_t count = PyTuple_Size(settings);
    const char **texts = PyMem_Calloc((size_t)count + 1, sizeof(*texts));

    if (!texts)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; texts && i < count; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(settings, i), NULL);
        if (!texts[i]) {
            PyMem_Free(texts);
            return NULL;
        }
    }
    return texts;
}

/* Node(settings: tuple of "name=value", log_fd: int, connect_timeout: float in seconds) */
static int node_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct penstock_node_options options = {.size = sizeof(options)};
    struct core_node *node = node_of(self);
    PyObject *settings;
    PyObject *connect;
    uint64_t connect_ms;
    const char **texts;
    int log_fd, r;

    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "Node() takes no keyword arguments here");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O!iO", &PyTuple_Type, &settings, &log_fd, &connect) ||
        core_seconds(connect, "connect_timeout", &connect_ms) < 0)
        return -1;
    if (node->handle || node->opening) {
        PyErr_SetString(core_classes.Invalid, "the node serves already");
        return -1;
    }
    texts = texts_of(settings);
    if (!texts)
        return -1;
    node->opening = true;
    node->pid = getpid();
    node->log_fd = log_fd < 0 ? -1 : dup(log_fd);
    options.connect_ms = connect_ms ? (uint32_t)connect_ms : 1;
    options.settings = texts;
    options.log = node->log_fd < 0 ? NULL : write_line;
    options.log_ctx = node;
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_node_open(&options, &node->handle);
    Py_END_ALLOW_THREADS;
    PyMem_Free(texts);
    node->opening = false;
    if (r == 0)
        return 0;
    node->handle = NULL;
    if (node->log_fd >= 0)
        close(node->log_fd);
    node->log_fd = -1;
    core_raise(r, NULL);
    return -1;
}

static PyObject *node_close(PyObject *self, PyObject *unused)
{
    struct core_node *node = node_of(self);
    struct penstock_node *handle = node->handle;
    int log_fd = node->log_fd;

    (void)unused;
    if (!handle)
        Py_RETURN_NONE;
    node->handle = NULL;
    if (node->pid == getpid()) { /* after a fork the threads are the parent's */
        Py_BEGIN_ALLOW_THREADS;
        penstock_node_close(handle);
        Py_END_ALLOW_THREADS;
    }
    node->log_fd = -1;
    if (log_fd >= 0)
        close(log_fd);
    Py_RETURN_NONE;
}

static void node_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(node_close(self, NULL));
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static struct penstock_node *usable(PyObject *self)
{
    struct core_node *node = node_of(self);

    if (!node->handle)
        PyErr_SetString(core_classes.Invalid, "the node is closed");
    else if (node->pid != getpid())
        PyErr_SetString(core_classes.ForkError, "the node is the parent process's");
    return node->handle && node->pid == getpid() ? node->handle : NULL;
}

static PyObject *node_urls(PyObject *self, void *unused)
{
    PyObject *out = PyList_New(0); /* first: it may collect what closes the node */
    struct penstock_node *handle = out ? usable(self) : NULL;
    const char *url;

    (void)unused;
    if (!handle)
        Py_CLEAR(out);
    for (int i = 0; out && (url = penstock_node_url(handle, i)); i++) {
        PyObject *text = PyUnicode_FromString(url);

        if (!text || PyList_Append(out, text) < 0)
            Py_CLEAR(out);
        Py_XDECREF(text);
    }
    return out;
}

static Py_ssize_t node_keys(PyObject *self)
{
    struct penstock_node *handle = usable(self);

    return handle ? (Py_ssize_t)penstock_node_keys(handle) : -1;
}

static PyObject *node_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!node_of(self)->handle);
}

static PyMethodDef methods[] = {
    {"close", node_close, METH_NOARGS, CORE_DOC_Node_close},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"urls", node_urls, NULL, CORE_DOC_Node_urls, NULL},
    {"closed", node_closed, NULL, CORE_DOC_Node_closed, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Node},
    {Py_tp_init, (void *)node_init},
    {Py_tp_dealloc, (void *)node_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_length, (void *)node_keys},
    {0, NULL},
};

PyType_Spec core_node_spec = {
    .name = "penstock._core.Node",
    .basicsize = sizeof(struct core_node),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
