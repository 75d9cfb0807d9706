/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core.h: penstock._core, the Python extension: what its files share. It stands on the public header alone
 * and on Python's limited API of 3.11, so that one build serves every later Python.
 *
 * Owns: the Python objects around a store's handles, and what they borrow while a call runs.
 * Thread: any that holds the GIL; calls into the library run without it, and nothing of Python is touched
 * there.
 * Never: keeps a handle open that Python has closed and nobody uses, or ends one that a call, a view or a
 * listing still uses.
 */
#ifndef CORE_H
#define CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <penstock/penstock.h>

#include <stdbool.h>
#include <string.h>

#define core_assert(x)                                                                                       \
    do {                                                                                                     \
        if (__builtin_expect(!(x), 0))                                                                       \
            Py_FatalError("penstock: broken assertion: " #x);                                                \
    } while (0)

#define core_count_of(array) (sizeof(array) / sizeof((array)[0]))

/* ---- module.c: classes, and errors ---- */

/* Classes of penstock.errors, by the results that raise them; those written in Python of penstock.records. */
#define CORE_ERRORS(X)                                                                                       \
    X(Error)                                                                                                 \
    X(NotFound)                                                                                              \
    X(Exists)                                                                                                \
    X(Stale)                                                                                                 \
    X(Busy)                                                                                                  \
    X(Unknown)                                                                                               \
    X(Incomplete)                                                                                            \
    X(Lost)                                                                                                  \
    X(NoSpace)                                                                                               \
    X(LimitReached)                                                                                          \
    X(NotAllowed)                                                                                            \
    X(Corrupt)                                                                                               \
    X(Unreachable)                                                                                           \
    X(TimedOut)                                                                                              \
    X(Unsupported)                                                                                           \
    X(Invalid)                                                                                               \
    X(ForkError)
#define CORE_RECORDS(X)                                                                                      \
    X(Entry)                                                                                                 \
    X(KeyStat)                                                                                               \
    X(Event)                                                                                                 \
    X(PoolNode)

struct core_classes {
#define X(name) PyObject *name;
    CORE_ERRORS(X)
    CORE_RECORDS(X)
#undef X
    PyTypeObject *Store, *View, *Listing, *Stream, *Reservation, *Watch, *Node, *Queue;
};
extern struct core_classes core_classes;

struct core_store;

/* Raises what belongs to @result, with the library's text of this thread. @key may be NULL. Returns NULL. */
PyObject *core_raise(int result, const Py_buffer *key);
/* The same for an operation, with the generation in the way. */
PyObject *core_raise_op(const struct penstock_op *op);
/* The error of one of several operations, not raised; NULL with another one. */
PyObject *core_error_of(const struct penstock_op *op);
/* The same for the first of @count that is not @but or 0, with a list of all results. */
PyObject *core_raise_batch(const struct penstock_op *ops, size_t count, int but);
/* Sets what the error that is raised now says beside its text. Takes @value, which may be NULL. */
void core_error_says(const char *name, PyObject *value);
/* Frees an object of one of these types. */
void core_free(PyObject *self);
/* How one of these prints: of which store it is, NULL: of none any more; and the key, where it has one. */
PyObject *core_repr(const char *name, struct core_store *store, const Py_buffer *key);

/* ---- args.c: what Python passes ---- */

enum { CORE_ARGS_MAX = 10 };

/* A method's parameters: @positional of them may come by place, @required must be there. */
struct core_call {
    const char *name;
    int required, positional;
    const char *names[CORE_ARGS_MAX];
    PyObject *interned[CORE_ARGS_MAX];
};

/* Sorts arguments of a fast call into @out (NULL: not given). Return: 0, or -1 with TypeError. */
int core_args(struct core_call *call, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
              PyObject **out);
/* An argument that is not given, or None. */
static inline bool core_absent(const PyObject *arg)
{
    return !arg || arg == Py_None;
}
/* Return: 0, or -1 with TypeError or ValueError that names @name. */
int core_flag(PyObject *arg, bool *out);
int core_number(PyObject *arg, const char *name, uint64_t max, uint64_t *out);
int core_signed(PyObject *arg, const char *name, int64_t *out);
int core_seconds(PyObject *arg, const char *name, uint64_t *out_ms);
int core_depth(PyObject *arg, uint16_t *out);
/* TypeError "@name must be @wanted, not <type of arg>". Returns -1. */
int core_type_error(const char *name, const char *wanted, PyObject *arg);

/* What is borrowed comes as a Py_buffer, to be given back with core_return(); one without an owner is empty.
 * Text and bytes are taken without the buffer protocol, which costs batches of small values more than the
 * values. */
enum { CORE_PLAIN = -1 }; /* as itemsize: a reference and no more */
static inline void core_return(Py_buffer *buffer)
{
    if (!buffer->obj)
        return;
    if (buffer->itemsize == CORE_PLAIN)
        Py_CLEAR(buffer->obj);
    else
        PyBuffer_Release(buffer);
}
int core_borrow_key(PyObject *arg, const char *name, Py_buffer *out);
/* A key's prefix, or a bound: None and nothing are empty. */
int core_borrow_prefix(PyObject *arg, const char *name, Py_buffer *out);

/* A value, or where one goes: one run of bytes, or pieces. */
struct core_data {
    Py_buffer whole;
    Py_buffer *pieces; /* NULL: whole */
    struct iovec *iov;
    uint32_t count;
    uint64_t bytes;
    uint8_t *joined; /* what stands for more pieces than an operation takes; NULL: nothing */
};

int core_borrow_data(PyObject *arg, const char *name, bool writable, struct core_data *out);
void core_return_data(struct core_data *data);
/* Only the first @bytes are meant. */
void core_cut_data(struct core_data *data, uint64_t bytes);
/* Has @op carry @data; one that reads is told with @reads. Return: 0, or -1 with MemoryError. */
int core_set_data(struct penstock_op *op, struct core_data *data, bool reads);
/* @op, which read to @data, has ended well: its bytes are where they belong. */
void core_spread_data(const struct core_data *data, const struct penstock_op *op);

/* ---- store.c ---- */

struct core_store {
    PyObject ob_base;
    struct penstock *handle; /* NULL: ended */
    uint32_t users;          /* calls underway, views, listings: each keeps the handle */
    bool closed;             /* by Python: no new users */
    uint32_t copies;         /* of what was put last */
    uint64_t guess_bytes;    /* size of the last value that was read whole */
    void *scratch;           /* for one batch at a time, kept between them */
    size_t scratch_bytes;
};

/* One more user of the store's handle. Return: it, or NULL with an exception. */
struct penstock *core_store_use(struct core_store *store);
/* One user less; the last one of a closed store ends the handle. Keeps the exception that is set. */
void core_store_leave(struct core_store *store);
/* Of a method: what @call came to, None or an exception. */
PyObject *core_call(PyObject *self, int (*call)(struct penstock *store));
/* Does @op, whose arguments the caller has borrowed, without the GIL. Return: its result; the store was used
 * before. */
int core_run(struct core_store *store, struct penstock_op *op);
/* The same with all of @count operations. Return: how many failed, or -1 with an exception when none was
 * begun. */
int core_run_all(struct core_store *store, struct penstock_op *ops, size_t count);
/* New bytes, not filled, for a value that had @value_bytes when it was looked at last: for the next try, with
 * room to grow. */
PyObject *core_room(uint64_t value_bytes, int tries);
enum { CORE_GUESS_BYTES_MAX = 64 << 20 };
/* The value that @op has read whole: @object, whose bytes it was read into, where they are exactly these, or
 * a new one. */
PyObject *core_bytes_of(struct core_store *store, const struct penstock_op *op, PyObject *object);
enum {
    CORE_IF_ABSENT,
    CORE_IF_GENERATION,
    CORE_CHECKSUM,
    CORE_DEPTH,
    CORE_ATTRS,
    CORE_TTL,
    CORE_DURABLE,
    CORE_PUT_OPTIONS
};
/* Sets what a put is told beside its value, by @args in that order. @attrs is to be given back. */
int core_put_options(PyObject *const args[CORE_PUT_OPTIONS], struct penstock_op *op, Py_buffer *attrs);

/* ---- trace.c ---- */

/* What this thread begins belongs to the trace that Python's context has now, if any. Never fails. */
void core_trace(void);
/* _trace(traceparent or None): the same of a trace that is named; calls ask for theirs from now on. */
PyObject *core_trace_set(PyObject *self, PyObject *text);

/* ---- batch.c ---- */

#define CORE_FAST(function) ((PyCFunction)(void (*)(void))(function))
/* A tuple of what can be gone through: nobody takes anything out of it meanwhile. A new reference. */
PyObject *core_items(PyObject *arg, const char *name);
PyObject *core_put_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_get_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_get_into_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_move_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_exists_many(PyObject *self, PyObject *keys);
PyObject *core_delete_many(PyObject *self, PyObject *keys);

/* ---- blocks.c ---- */

PyObject *core_report_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_revoke_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_match_blocks(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_block_hits(PyObject *self, PyObject *names);

/* ---- pool.c ---- */

PyObject *core_nodes(PyObject *self, PyObject *unused);
PyObject *core_drain_id(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_forgive(PyObject *self, PyObject *unused);

/* ---- about.c ---- */

PyObject *core_head(PyObject *self, PyObject *key);
PyObject *core_delete_prefix(PyObject *self, PyObject *prefix);
PyObject *core_delete_range(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_clear(PyObject *self, PyObject *unused);
PyObject *core_figures(PyObject *self, PyObject *unused);
PyObject *core_flush(PyObject *self, PyObject *unused);
PyObject *core_ping(PyObject *self, PyObject *unused);
PyObject *core_register(PyObject *self, PyObject *buffer);
PyObject *core_deregister(PyObject *self, PyObject *buffer);

/* ---- view.c, listing.c, stream.c, reservation.c, watch.c, node.c, commit.c, queue.c, dlpack.c ---- */

extern PyType_Spec core_store_spec, core_view_spec, core_listing_spec, core_stream_spec,
    core_reservation_spec, core_watch_spec, core_node_spec, core_queue_spec;
PyObject *core_reserve(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_reserve_pairs(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_commit_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_view_open(PyObject *self, PyObject *key);
PyObject *core_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_dlpack_device(PyObject *self, PyObject *unused);
PyObject *core_list_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_watch_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);
PyObject *core_queue_open(PyObject *self, PyObject *unused);
PyObject *core_commit(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_stream_open(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords);

#endif
