/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c: operations that an event loop begins and collects. What an operation borrows is kept until the
 * library has given it back, whatever becomes of the future that waits for it. One thread at a time.
 *
 *   add()       checks arguments and borrows them; nothing travels yet
 *   add_many()  the same for operations with one token, whose results come together when all have ended
 *   flush()     submits what was added, together
 *   reap()      [(token, result or exception)] of what has ended
 */
#include "core.h"
#include "docs.h"

#include <errno.h>

enum {
    ROOM_BYTES = 4096,     /* a value of unknown size is read here first, unless the last one was larger */
    ROOM_BYTES_MIN = 256,  /* in batches of many */
    ROOMS_BYTES = 1 << 20, /* of one batch together, as far as the least allows */
    REAP_MAX = 64,
    GET_TRIES_MAX = 8,
};

/* Operations whose results come together. It goes with the last of their tasks. */
struct batch {
    PyObject *token, *out; /* a list; what a failed operation has in it is not shown */
    PyObject *error;       /* of the first in order that failed */
    size_t error_index, count, left;
    int32_t results[];
};

struct task {
    struct penstock_op *op; /* in its group */
    struct group *group;    /* once it is submitted */
    struct batch *batch;    /* NULL: the task has a token of its own */
    size_t index;           /* in the batch */
    PyObject *token, *bytes;
    Py_buffer key;
    struct core_data data;
    int tries;
    bool whole; /* a get of unknown size */
    size_t room_bytes;
    uint8_t room[];
};

/* Operations that were submitted together; it goes when all of them have ended. */
struct group {
    struct group *next, **back;
    size_t count, room, left;
    struct penstock_op ops[];
};

struct core_queue {
    PyObject ob_base;
    struct core_store *store;
    struct penstock_queue *queue;
    struct group *groups; /* submitted */
    struct group *added;  /* not yet */
    size_t underway;
    bool running;      /* a thread is in the library */
    PyObject *trouble; /* of a reap that had results to return: the next one raises it */
};

static struct core_queue *queue_of(PyObject *self)
{
    return (struct core_queue *)self;
}

/* ---- tasks and groups ---- */

static void batch_leave(struct batch *batch)
{
    core_assert(batch->left > 0);
    if (--batch->left)
        return;
    Py_XDECREF(batch->token);
    Py_XDECREF(batch->out);
    Py_XDECREF(batch->error);
    PyMem_Free(batch);
}

static void task_free(struct task *task)
{
    if (task->batch)
        batch_leave(task->batch);
    Py_XDECREF(task->token);
    Py_XDECREF(task->bytes);
    core_return(&task->key);
    core_return_data(&task->data);
    PyMem_Free(task);
}

static void group_free(struct group *group)
{
    for (size_t i = 0; group && i < group->count; i++) {
        if (group->ops[i].user)
            task_free(group->ops[i].user);
    }
    PyMem_Free(group);
}

/* Room in @group, which may be NULL, for @more operations. Return: 0, or -1 with an exception. */
static int group_room(struct group **to, size_t more)
{
    struct group *group = *to;
    size_t room = group ? group->room : 4;

    while (room < (group ? group->count : 0) + more)
        room *= 2;
    if (group && room == group->room)
        return 0;
    group = PyMem_Realloc(group, sizeof(*group) + room * sizeof(group->ops[0]));
    if (!group) {
        PyErr_NoMemory();
        return -1;
    }
    if (!*to)
        *group = (struct group){0};
    group->room = room;
    *to = group;
    for (size_t i = 0; i < group->count; i++)
        ((struct task *)group->ops[i].user)->op = &group->ops[i];
    return 0;
}

/* Puts @op, of @task, into a group with room for it. */
static void place(struct group *group, struct task *task, const struct penstock_op *op)
{
    core_assert(group->count < group->room);
    task->op = &group->ops[group->count++];
    *task->op = *op;
    task->op->user = task;
}

/* ---- adding: all arguments are read before the queue is touched, since what reads them may call it ---- */

/* Where a get of unknown size goes at first. */
static int prepare_whole(const struct core_queue *q, struct task *task, struct penstock_op *op)
{
    uint64_t guess = q->store->guess_bytes;

    task->whole = true;
    op->data = task->room;
    op->bytes = task->room_bytes;
    if (guess <= task->room_bytes || task->batch)
        return 0;
    task->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)guess);
    op->data = task->bytes ? PyBytes_AsString(task->bytes) : NULL;
    op->bytes = guess;
    return task->bytes ? 0 : -1;
}

enum { ADD_TOKEN, ADD_CODE, ADD_KEY, ADD_DATA, ADD_A, ADD_B, ADD_WAIT, ADD_ARGS };

/* a: the offset, b: the length of bytes to be made; or None. */
static int prepare_get(const struct core_queue *q, struct task *task, PyObject *const *args,
                       struct penstock_op *op)
{
    PyObject *offset = args[ADD_A];
    uint64_t wait_ms;
    int64_t at;

    if (args[ADD_WAIT] != Py_None) {
        if (core_seconds(args[ADD_WAIT], "wait", &wait_ms) < 0)
            return -1;
        op->wait_ms = (uint32_t)wait_ms;
        op->flags = wait_ms ? PENSTOCK_WAIT : 0;
    }
    if (offset != Py_None) {
        if (core_signed(offset, "offset", &at) < 0)
            return -1;
        op->flags |= PENSTOCK_RANGE | (at < 0 ? PENSTOCK_FROM_END : 0);
        op->offset = at < 0 ? -(uint64_t)at : (uint64_t)at;
    }
    if (args[ADD_DATA] != Py_None) /* into the caller's memory */
        return 0;
    if (offset == Py_None)
        return prepare_whole(q, task, op);
    if (core_number(args[ADD_B], "length", PY_SSIZE_T_MAX, &op->bytes) < 0)
        return -1;
    task->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)op->bytes);
    op->data = task->bytes ? PyBytes_AsString(task->bytes) : NULL;
    return task->bytes ? 0 : -1;
}

static int prepare(const struct core_queue *q, struct task *task, long code, PyObject *const *args,
                   struct penstock_op *op)
{
    uint64_t flags = 0;

    penstock_prep(op, (enum penstock_code)code, task->key.buf, (size_t)task->key.len);
    if (args[ADD_DATA] != Py_None && core_set_data(op, &task->data, code == PENSTOCK_GET) < 0)
        return -1;
    if (code == PENSTOCK_GET)
        return prepare_get(q, task, args, op);
    if (args[ADD_A] != Py_None) { /* put, delete: if_generation */
        if (core_number(args[ADD_A], "if_generation", UINT64_MAX, &op->if_generation) < 0)
            return -1;
        op->flags = PENSTOCK_IF_GENERATION;
    }
    if (args[ADD_B] != Py_None && core_number(args[ADD_B], "flags", UINT32_MAX, &flags) < 0) /* put */
        return -1;
    op->flags |= (uint32_t)(flags & (PENSTOCK_IF_ABSENT | PENSTOCK_CHECKSUM | PENSTOCK_DURABLE));
    return 0;
}

static bool is_known(long code)
{
    return code == PENSTOCK_GET || code == PENSTOCK_PUT || code == PENSTOCK_STAT_KEY ||
           code == PENSTOCK_DELETE;
}

/* A task and its operation, with @args as of add(); one of @batch, or with NULL one with a token of its own.
 * NULL with an exception. */
static struct task *task_new(const struct core_queue *q, long code, PyObject *const *args,
                             struct batch *batch, size_t room_bytes, struct penstock_op *op)
{
    bool gets = code == PENSTOCK_GET, has_data = args[ADD_DATA] != Py_None;
    size_t room = gets && !has_data && args[ADD_A] == Py_None ? room_bytes : 0;
    struct task *task = PyMem_Calloc(1, sizeof(*task) + room);

    if (!task) {
        PyErr_NoMemory();
        return NULL;
    }
    *op = (struct penstock_op){0};
    task->room_bytes = room;
    task->batch = batch;
    if (batch)
        task->index = batch->left++ - 1;
    else
        task->token = Py_NewRef(args[ADD_TOKEN]);
    if (core_borrow_key(args[ADD_KEY], "key", &task->key) == 0 &&
        (!has_data || core_borrow_data(args[ADD_DATA], gets ? "buffer" : "value", gets, &task->data) == 0) &&
        prepare(q, task, code, args, op) == 0)
        return task;
    task_free(task);
    return NULL;
}

/* add(token, code, key, data or None, a, b, wait) */
static PyObject *queue_add(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long code = count == ADD_ARGS ? PyLong_AsLong(args[ADD_CODE]) : 0;
    struct core_queue *q = queue_of(self);
    struct penstock_op op;
    struct task *task;

    if (!is_known(code)) {
        PyErr_SetString(PyExc_TypeError, "add() takes a token, an operation and its arguments");
        return NULL;
    }
    task = task_new(q, code, args, NULL, ROOM_BYTES, &op);
    if (!task)
        return NULL;
    if (group_room(&q->added, 1) < 0) {
        task_free(task);
        return NULL;
    }
    place(q->added, task, &op);
    Py_RETURN_NONE;
}

static struct batch *batch_open(PyObject *token, size_t count)
{
    struct batch *batch = PyMem_Calloc(1, sizeof(*batch) + count * sizeof(batch->results[0]));

    if (!batch) {
        PyErr_NoMemory();
        return NULL;
    }
    batch->left = 1; /* for who adds */
    batch->count = count;
    batch->token = Py_NewRef(token);
    batch->out = PyList_New((Py_ssize_t)count);
    if (!batch->out) {
        batch_leave(batch);
        return NULL;
    }
    return batch;
}

/* Makes a group of what @items say, each a tuple (key, data or None, a, b). Return: 0, or -1 with an
 * exception. */
static int group_items(const struct core_queue *q, long code, PyObject *items, struct batch *batch,
                       struct group **out)
{
    size_t room_bytes = ROOMS_BYTES / batch->count;

    room_bytes = room_bytes > ROOM_BYTES       ? ROOM_BYTES
                 : room_bytes < ROOM_BYTES_MIN ? ROOM_BYTES_MIN
                                               : room_bytes;
    if (group_room(out, batch->count) < 0)
        return -1;
    for (size_t i = 0; i < batch->count; i++) {
        PyObject *item = PyTuple_GetItem(items, (Py_ssize_t)i);
        PyObject *args[ADD_ARGS] = {[ADD_WAIT] = Py_None};
        struct penstock_op op;
        struct task *task;

        if (!PyTuple_Check(item) || PyTuple_Size(item) != ADD_WAIT - ADD_KEY) {
            PyErr_SetString(PyExc_TypeError, "add_many() takes tuples (key, data, a, b)");
            return -1;
        }
        for (int j = ADD_KEY; j < ADD_WAIT; j++)
            args[j] = PyTuple_GetItem(item, j - ADD_KEY);
        task = task_new(q, code, args, batch, room_bytes, &op);
        if (!task)
            return -1;
        place(*out, task, &op);
    }
    return 0;
}

/* Moves all of @group behind what was added. Return: 0, or -1 with an exception. */
static int add_group(struct core_queue *q, struct group *group)
{
    if (!q->added) {
        q->added = group;
        return 0;
    }
    if (group_room(&q->added, group->count) < 0)
        return -1;
    for (size_t i = 0; i < group->count; i++)
        place(q->added, group->ops[i].user, &group->ops[i]);
    PyMem_Free(group);
    return 0;
}

/* add_many(token, code, list of (key, data or None, a, b)), which is not empty */
static PyObject *queue_add_many(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long code = count == 3 ? PyLong_AsLong(args[1]) : 0;
    PyObject *items = is_known(code) ? core_items(args[2], "items") : NULL;
    struct group *group = NULL;
    struct batch *batch;
    int r;

    if (!items || PyTuple_Size(items) == 0) {
        Py_XDECREF(items);
        PyErr_SetString(PyExc_TypeError, "add_many() takes a token, an operation and a list of arguments");
        return NULL;
    }
    batch = batch_open(args[0], (size_t)PyTuple_Size(items));
    r = batch ? group_items(queue_of(self), code, items, batch, &group) : -1;
    Py_DECREF(items);
    if (r == 0)
        r = add_group(queue_of(self), group);
    if (r < 0)
        group_free(group);
    if (batch)
        batch_leave(batch);
    return r == 0 ? Py_NewRef(Py_None) : NULL;
}

/* ---- submitting ---- */

/* By the thread for which the queue is running. */
static int submit(struct core_queue *q)
{
    struct group *group = q->added;
    struct penstock_queue *queue = q->queue;
    int r;

    if (!group || !group->count)
        return 0;
    q->added = NULL;
    group->left = group->count;
    for (size_t i = 0; i < group->count; i++)
        ((struct task *)group->ops[i].user)->group = group;
    group->next = q->groups;
    group->back = &q->groups;
    if (q->groups)
        q->groups->back = &group->next;
    q->groups = group;
    q->underway += group->count;
    core_assert(q->running);
    Py_BEGIN_ALLOW_THREADS;
    r = penstock_submit(queue, group->ops, group->count);
    Py_END_ALLOW_THREADS;
    if (r == 0)
        return 0;
    q->underway -= group->count; /* none was begun: they are the caller's to end */
    q->groups = group->next;
    if (q->groups)
        q->groups->back = &q->groups;
    group_free(group);
    core_raise(r, NULL);
    return -1;
}

static bool usable(const struct core_queue *q)
{
    if (q->running)
        PyErr_SetString(PyExc_ValueError, "another thread is using the queue");
    return !q->running;
}

/* Raises where nothing of it was begun. */
static PyObject *queue_flush(PyObject *self, PyObject *unused)
{
    struct core_queue *q = queue_of(self);
    struct group *dropped = q->added;
    int r;

    (void)unused;
    if (!usable(q))
        return NULL;
    if (q->store->closed) {
        q->added = NULL;
        group_free(dropped);
        PyErr_SetString(core_classes.Invalid, "the store is closed");
        return NULL;
    }
    q->running = true;
    r = submit(q);
    q->running = false;
    return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- collecting ---- */

/* Takes an operation out of its group, and the group away with its last one. */
static void take_out(struct core_queue *q, struct group *group, struct penstock_op *op)
{
    core_assert(op >= group->ops && op < group->ops + group->count && group->left > 0 && q->underway > 0);
    op->user = NULL;
    q->underway--;
    if (--group->left)
        return;
    *group->back = group->next;
    if (group->next)
        group->next->back = group->back;
    PyMem_Free(group);
}

/* A value that was larger than its room goes on its way again. Return: 1, 0 this was the end, -1. */
static int try_again(struct core_queue *q, struct task *task)
{
    const struct penstock_op was = *task->op;
    struct penstock_op op = {0};

    if (!task->whole || was.result != -ENOBUFS || task->tries == GET_TRIES_MAX)
        return 0;
    Py_XDECREF(task->bytes);
    task->bytes = core_room(was.value_bytes, task->tries++);
    if (!task->bytes || group_room(&q->added, 1) < 0)
        return -1;
    penstock_prep_get(&op, was.key, was.key_bytes, PyBytes_AsString(task->bytes),
                      (uint64_t)PyBytes_Size(task->bytes));
    place(q->added, task, &op);
    return 1;
}

static PyObject *outcome(struct core_queue *q, const struct task *task)
{
    const struct penstock_op *op = task->op;

    if (op->result == PENSTOCK_MISS && op->code != PENSTOCK_GET)
        return Py_NewRef(Py_False);
    if (op->result == PENSTOCK_MISS && task->batch)
        return Py_NewRef(Py_None);
    if (op->result != 0)
        return core_error_of(op);
    if (op->code == PENSTOCK_PUT)
        return PyLong_FromUnsignedLongLong(op->generation);
    if (op->code != PENSTOCK_GET)
        return Py_NewRef(Py_True);
    if (task->whole)
        return core_bytes_of(q->store, op, task->bytes);
    if (task->bytes)
        return Py_NewRef(task->bytes);
    core_spread_data(&task->data, op);
    return PyLong_FromUnsignedLongLong(op->flags & PENSTOCK_RANGE ? op->bytes : op->value_bytes);
}

/* What is raised now, as an object. */
static PyObject *caught(void)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

/* Appends (@token, @result), whose reference it takes; without a result what is raised now. */
static int append(PyObject *out, PyObject *token, PyObject *result)
{
    PyObject *pair;
    int r;

    if (!result)
        result = caught();
    pair = result ? PyTuple_Pack(2, token, result) : NULL;
    r = pair ? PyList_Append(out, pair) : -1;
    Py_XDECREF(pair);
    Py_XDECREF(result);
    return r;
}

/* What of a batch ended well, and None for what did not. */
static PyObject *values_of(const struct batch *batch)
{
    PyObject *values = PyList_GetSlice(batch->out, 0, (Py_ssize_t)batch->count);

    for (size_t i = 0; values && i < batch->count; i++) {
        if (PyExceptionInstance_Check(PyList_GetItem(values, (Py_ssize_t)i)) &&
            PyList_SetItem(values, (Py_ssize_t)i, Py_NewRef(Py_None)) < 0)
            Py_CLEAR(values);
    }
    return values;
}

/* The list of a batch that has ended; or the error, with the results and values of all. */
static PyObject *batch_outcome(const struct batch *batch)
{
    PyObject *results, *values;

    if (!batch->error)
        return Py_NewRef(batch->out);
    values = values_of(batch);
    results = PyList_New((Py_ssize_t)batch->count);
    for (size_t i = 0; results && i < batch->count; i++) {
        PyObject *number = PyLong_FromLong(batch->results[i]);

        if (!number || PyList_SetItem(results, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(results);
    }
    if (results && PyObject_SetAttrString(batch->error, "results", results) < 0)
        PyErr_Clear(); /* MemoryError takes none */
    if (values && PyObject_SetAttrString(batch->error, "values", values) < 0)
        PyErr_Clear();
    Py_XDECREF(values);
    Py_XDECREF(results);
    return Py_NewRef(batch->error);
}

/* Puts a result into its batch, and appends the batch with its last one. */
static int take_into_batch(struct task *task, PyObject *result, PyObject *out)
{
    struct batch *batch = task->batch;

    if (!result)
        result = caught();
    batch->results[task->index] = task->op->result;
    if (result && PyExceptionInstance_Check(result) && (!batch->error || task->index < batch->error_index)) {
        PyObject *later = batch->error;

        batch->error = Py_NewRef(result);
        batch->error_index = task->index;
        Py_XDECREF(later);
    }
    if (!result || PyList_SetItem(batch->out, (Py_ssize_t)task->index, result) < 0)
        return -1;
    return batch->left > 1 ? 0 : append(out, batch->token, batch_outcome(batch));
}

/* Appends (token, result or exception), unless the operation goes on. */
static int take_result(struct core_queue *q, struct penstock_op *op, PyObject *out)
{
    struct task *task = op->user;
    struct group *group = task->group;
    int again = try_again(q, task), r = 0;

    if (again <= 0) {
        PyObject *result = again == 0 ? outcome(q, task) : NULL;

        r = task->batch ? take_into_batch(task, result, out) : append(out, task->token, result);
    }
    take_out(q, group, op);
    if (again <= 0)
        task_free(task);
    return r;
}

static PyObject *queue_reap(PyObject *self, PyObject *unused)
{
    struct core_queue *q = queue_of(self);
    struct penstock_queue *queue = q->queue;
    struct penstock_op *ops[REAP_MAX];
    PyObject *out = PyList_New(0);
    int count = 1, r = 0;

    (void)unused;
    if (!out || !usable(q)) {
        Py_XDECREF(out);
        return NULL;
    }
    if (q->trouble) {
        Py_DECREF(out);
        PyErr_SetObject((PyObject *)Py_TYPE(q->trouble), q->trouble);
        Py_CLEAR(q->trouble);
        return NULL;
    }
    q->running = true; /* also while results are made: what that ends may call the queue */
    while (out && count > 0) {
        Py_BEGIN_ALLOW_THREADS;
        count = penstock_reap(queue, ops, REAP_MAX, 0);
        Py_END_ALLOW_THREADS;
        if (count < 0)
            core_raise(count, NULL);
        for (int i = 0; i < count; i++)
            r = take_result(q, ops[i], out) < 0 ? -1 : r;
        if (count >= 0 && r == 0 && submit(q) == 0)
            continue;
        if (PyList_Size(out) == 0)
            Py_CLEAR(out);
        else
            q->trouble = caught();
        break;
    }
    q->running = false;
    return out;
}

static PyObject *queue_fileno(PyObject *self, PyObject *unused)
{
    int fd;

    (void)unused;
    if (!usable(queue_of(self)))
        return NULL;
    fd = penstock_queue_fd(queue_of(self)->queue);
    return fd < 0 ? core_raise(fd, NULL) : PyLong_FromLong(fd);
}

static PyObject *queue_underway(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(queue_of(self)->underway);
}

/* ---- life ---- */

PyObject *core_queue_open(PyObject *self, PyObject *unused)
{
    struct core_store *store = (struct core_store *)self;
    struct core_queue *q = queue_of(PyType_GenericAlloc(core_classes.Queue, 0));
    struct penstock *handle = q ? core_store_use(store) : NULL;
    int r;

    (void)unused;
    if (handle) {
        r = penstock_queue_open(handle, &q->queue);
        if (r == 0) {
            q->store = (struct core_store *)Py_NewRef(self);
            return (PyObject *)q;
        }
        core_raise(r, NULL);
        core_store_leave(store);
    }
    Py_XDECREF((PyObject *)q);
    return NULL;
}

static PyObject *queue_repr(PyObject *self)
{
    return core_repr("Queue", queue_of(self)->store, NULL);
}

static int queue_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct core_queue *q = queue_of(self);

    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)q->store);
    Py_VISIT(q->trouble);
    for (const struct group *group = q->groups; group; group = group->next) {
        for (size_t i = 0; i < group->count; i++) {
            if (group->ops[i].user)
                Py_VISIT(((struct task *)group->ops[i].user)->token);
        }
    }
    return 0;
}

/* Waits for what is underway: the library has its memory. */
static void end_queue(struct core_queue *q)
{
    struct core_store *store = q->store;
    struct penstock_queue *queue = q->queue;

    if (!store)
        return;
    core_assert(!q->running);
    q->store = NULL;
    q->queue = NULL;
    Py_BEGIN_ALLOW_THREADS;
    penstock_queue_close(queue);
    Py_END_ALLOW_THREADS;
    while (q->groups) {
        struct group *group = q->groups;

        q->groups = group->next;
        group_free(group);
    }
    group_free(q->added);
    q->added = NULL;
    core_store_leave(store);
    Py_DECREF((PyObject *)store);
}

static void queue_dealloc(PyObject *self)
{
    PyObject *type, *value, *trace;

    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    end_queue(queue_of(self));
    Py_CLEAR(queue_of(self)->trouble);
    PyErr_Restore(type, value, trace);
    core_free(self);
}

static PyMethodDef methods[] = {
    {"add", CORE_FAST(queue_add), METH_FASTCALL, CORE_DOC_Queue_add},
    {"add_many", CORE_FAST(queue_add_many), METH_FASTCALL, CORE_DOC_Queue_add_many},
    {"flush", queue_flush, METH_NOARGS, CORE_DOC_Queue_flush},
    {"reap", queue_reap, METH_NOARGS, CORE_DOC_Queue_reap},
    {"fileno", queue_fileno, METH_NOARGS, CORE_DOC_Queue_fileno},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"underway", queue_underway, NULL, CORE_DOC_Queue_underway, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, CORE_DOC_Queue},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_repr, (void *)queue_repr},
    {Py_tp_traverse, (void *)queue_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL},
};

PyType_Spec core_queue_spec = {
    .name = "penstock._core.Queue",
    .basicsize = sizeof(struct core_queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
