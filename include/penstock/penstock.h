/* SPDX-License-Identifier: Apache-2.0 */
/*
 * penstock.h: pooled memory for tensors: one store of named byte values.
 *
 * Keys are 1 to 4,096 bytes, any bytes; values are bytes, up to the store's memory. Sizes and offsets are in
 * bytes, times in milliseconds. A value is visible whole or not at all; every write gives it a new
 * generation.
 *
 * Results: 0 is success. Positive numbers (enum penstock_result) are outcomes that every caller must expect.
 * Negative numbers are -errno; penstock_error() then names the fault of this thread's last failed call.
 *
 * Threads: a store may be used by any number of threads at once. But for a follower nothing runs in the
 * background: whoever waits in a call or in penstock_reap() makes progress for all threads that use the
 * store. After fork() the child gets -ECHILD and opens its own.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_API __attribute__((visibility("default")))

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

enum {
    PENSTOCK_KEY_BYTES_MAX = 4096,
    PENSTOCK_ATTR_BYTES_MAX = 256,
    PENSTOCK_DEPTH_NONE = 0xffff,
};

enum penstock_result {
    PENSTOCK_OK = 0,
    PENSTOCK_MISS = 1,   /* no such key */
    PENSTOCK_EXISTS = 2, /* if-absent: the key is there; unless-generation: nothing newer is */
    PENSTOCK_STALE = 3,  /* if-generation: the value has another generation */
    PENSTOCK_BUSY = 4,   /* too much at once, until the deadline; nothing was done */
    PENSTOCK_UNKNOWN =
        5, /* the connection failed after the write was sent: it may or may not have been applied */
    PENSTOCK_OWNED = 6, /* reserve: another reservation has the key */
    /* Of a pool alone, where it cannot say that there is no such key: */
    PENSTOCK_INCOMPLETE = 7, /* not all nodes that may have it can be asked yet */
    PENSTOCK_LOST = 8,       /* no node has it, and one that may have had it is gone */
};

/*
 * Errors that are told apart: -ENOSPC the store is full; -EFBIG larger than the whole store, or than can be
 * durable; -EACCES not allowed; -EBADMSG the value's checksum is wrong; -ERANGE the range is not inside of
 * the value; -EMSGSIZE the value has another size than stated; -ENOBUFS the buffer is smaller than the value;
 * -EINVAL empty key or bad argument; -ENAMETOOLONG key over 4,096 bytes; -ESTALE the node routes keys by
 * another table; -EDQUOT more reservations, pins or pinned bytes than the node grants one session; -ENODATA a
 * reservation that is not fully written; -E2BIG too many pieces, gaps or keys; -ECONNREFUSED, -EHOSTUNREACH,
 * -ECONNRESET no node there; -EREMCHG no master leads the pool for now; -ETIMEDOUT; -EPROTO, -EPROTONOSUPPORT
 * no penstock node, or another version; -EOPNOTSUPP not possible on this kind of store; -ECHILD used after
 * fork.
 */

struct penstock;

/* Text of this thread's last failed call, naming key, address or limit. Never NULL; valid until the thread's
 * next failure. */
PENSTOCK_API const char *penstock_error(void);
/* A word for a result: "not found", "no space". Static. */
PENSTOCK_API const char *penstock_result_text(int result);

/**
 * penstock_trace() - say to which trace operations belong
 * @traceparent: of the span that asks, as in W3C's Trace Context ("00-TRACE-SPAN-FLAGS"); NULL or "": none
 * It holds for what this thread begins from now on, with any store, until it says otherwise. A queue's
 * operation belongs to the trace that its submit found. The trace travels to the nodes and masters that are
 * asked, and from them on to replicas: they name it where they log a request.
 * Return: 0, -EINVAL it is none; then what was said before stays.
 */
PENSTOCK_API int penstock_trace(const char *traceparent);

/* ---- opening ---- */

/* Zero every member that is not meant; `size` is sizeof(struct penstock_options). */
struct penstock_options {
    size_t size;
    const char *secret_file; /* file with the shared secret, not readable by others; NULL: none */
    uint32_t timeout_ms;     /* a call's time to its end; 0: 10 s. Large values get 1 ms more per 64 KiB */
    uint32_t connect_ms;     /* time to connect; 0: 5 s */
    /* TLS over TCP, if any of these is set: by the files, or without any by the secret. PEM; NULL: none. */
    uint32_t tls;                /* 1: with the others empty, too */
    const char *tls_ca;          /* authorities of the node's certificate: a file, or a hashed folder */
    const char *tls_certificate; /* this client's, with its chain, */
    const char *tls_key;         /* and its private key, not readable by others */
    const char *tls_name;        /* that the node's certificate has, if not that of its address */
    const char *transport;       /* "ucx", "stream"; NULL, "auto": UCX if both sides have it and TLS is off */
    const void *secret;          /* the secret itself, unless there is a file; NULL: none; borrowed */
    size_t secret_bytes;         /* 1 to 4096 */
};

/**
 * penstock_open() - open a store
 * @url: "mem:" or NULL: a store inside this process ("mem:?dram=4G&page_size=2M&shards=2&cache=PREFIX");
 * "node://HOST:PORT", "node://[V6]:PORT", "node+unix:///PATH": a node ("?lane=tcp" keeps shared memory out;
 * off loopback it takes "?fabric=trusted"; "tls=1" and "tls_ca=FILE" stand for the options of that name);
"pool://HOST:PORT[,HOST:PORT...]": a pool of nodes, by its masters
("?replicas=R": values that may lie on any node are put on that many hosts; "host=NAME": the client's)
 * @options: NULL for defaults; borrowed during the call
 * @out: the store, written on success; end with penstock_close()
 * Return: 0 or -errno.
 */
PENSTOCK_API int penstock_open(const char *url, const struct penstock_options *options,
                               struct penstock **out);
/* Waits for what is underway. No other thread may use the store; views must be released before. NULL is fine.
 * Returns NULL. */
PENSTOCK_API struct penstock *penstock_close(struct penstock *store);

/* ---- operations: one form under the simple calls, batches and queues ---- */

enum penstock_code {
    PENSTOCK_PUT = 1,
    PENSTOCK_GET = 2,
    PENSTOCK_STAT_KEY = 3, /* does it exist; size, generation, attributes; no side effect */
    PENSTOCK_DELETE = 4,
    PENSTOCK_PIN = 5,
    PENSTOCK_UNPIN = 6,
    PENSTOCK_CHECK = 7, /* in penstock_commit() only: the key has this generation, or with 0 is absent */
    /* Reservations, below. */
    PENSTOCK_RESERVE = 22,
    PENSTOCK_WRITE_AT = 23,
    PENSTOCK_RESERVATION_COMMIT = 24,
    PENSTOCK_RESERVATION_ABORT = 25,
};

/* A bit has one meaning. A flag that is not said to mean something to a call is -EINVAL there. */
enum penstock_flag {
    PENSTOCK_IF_ABSENT = 1,     /* put, reserve: only when there is no such key */
    PENSTOCK_IF_GENERATION = 2, /* put, delete, reserve: only over this generation (put: 0 means absent); get:
                                   only of it */
    PENSTOCK_CHECKSUM = 4,      /* put: keep a crc32c of the value, which every get of the whole value checks;
                                   reservation commit: `value_crc` is the value's */
    PENSTOCK_TTL = 8,           /* put, reserve: the value ends after `ttl_ms` */
    PENSTOCK_EXACT = 16,        /* get: the value must have exactly `bytes` */
    PENSTOCK_UNLESS_GENERATION = 32, /* get: only when the value has another generation than this */
    PENSTOCK_DURABLE = 64,   /* put, reservation commit: ends when a crash would not lose the value; wants an
                                SSD, and   no end of the value. -EIO: it is there, and might not last: the SSD
                                is   full, or   failed */
    PENSTOCK_REPLACE = 128,  /* reserve: like any put, over what is there and beside other writers */
    PENSTOCK_RANGE = 256,    /* get: bytes [offset, offset + bytes), all of them inside of the value */
    PENSTOCK_FROM_END = 512, /* get, beside RANGE: the range begins `offset` bytes before the value's end */
    PENSTOCK_WAIT = 1024,    /* get: a key that is not there is waited for, `wait_ms` long */
};

struct penstock_reservation;

/* What a failure tells beside its errno; zero where it tells nothing. */
struct penstock_error_detail {
    uint64_t limit_bytes;  /* a put's -EFBIG: the largest that fits, else 0; -ENOSPC by a quota: its bytes */
    uint32_t prefix_bytes; /* -ENOSPC by a quota: it is for keys with this one's first bytes, so many */
    uint32_t denied;       /* -EACCES: in the low byte the right that is missing, 1 read, 2 write, 4 admin;
                              the rest is the library's */
};

/*
 * One operation. Fill the first part (penstock_prep_* do), leave the rest. Of members that share a place each
 * operation has at most one. All memory that it names, and the struct itself, is borrowed from submit until
 * the operation comes out of a reap or a batch. Zero-initialise.
 */
struct penstock_op {
    uint8_t code;
    uint8_t spare;
    uint16_t key_bytes;
    uint16_t attr_bytes; /* put: length of attrs; get and stat: its room; then: what was there */
    union {
        uint16_t depth; /* put: place in a prefix chain, for eviction; PENSTOCK_DEPTH_NONE: no chain */
        uint16_t tier;  /* reservation commit */
    };
    uint32_t flags;
    uint32_t iov_count;
    const void *key;
    union {
        void *data;                               /* put: the value; get: where it goes. Unused with iov */
        struct penstock_reservation *reservation; /* reserve: written when it succeeds */
    };
    union {
        uint64_t bytes;        /* put: size of the value; get: room, or length of the range */
        uint64_t pin_ms;       /* pin: how long; 0: for ever */
        uint64_t member_count; /* the library's: of a commit, operations at data */
    };
    union {
        uint64_t offset;    /* get with PENSTOCK_RANGE, reservation write */
        uint64_t ttl_ms;    /* put, reserve with PENSTOCK_TTL; 0: what the store says of the key's prefix */
        uint32_t value_crc; /* reservation commit with PENSTOCK_CHECKSUM: crc32c of the value */
        uint64_t value_reservation; /* the library's: of a commit's put, the reservation with its value */
    };
    union {
        uint64_t if_generation;    /* put, get, delete, reserve with a condition on it; check */
        uint64_t handle;           /* reservation write, commit and abort: the reservation's */
        uint64_t known_version;    /* the library's: of a pool map that the asker has */
        uint64_t generation_floor; /* the library's: later generations are higher */
    };
    uint32_t wait_ms;        /* get with PENSTOCK_WAIT: 0: the store's timeout; 2^31 - 1 at the most */
    int32_t result;          /* out: 0, enum penstock_result, -errno */
    const struct iovec *iov; /* pieces in place of data, bytes in all; NULL: none */
    void *attrs;             /* user attributes; NULL: none */
    uint64_t value_bytes;    /* out: size of the whole value */
    uint64_t generation;     /* out: of the value written, read or in the way */
    struct penstock_error_detail error_detail; /* out */
    void *user;                                /* yours */
    void *reserved[5];                         /* the library's while underway */
};

static inline void penstock_prep(struct penstock_op *op, enum penstock_code code, const void *key,
                                 size_t key_bytes)
{
    op->code = (uint8_t)code;
    op->flags = 0;
    op->depth = PENSTOCK_DEPTH_NONE;
    op->key = key;
    /* Longer keys than any store takes stay recognisable. */
    op->key_bytes = (uint16_t)(key_bytes > UINT16_MAX ? UINT16_MAX : key_bytes);
}

static inline void penstock_prep_put(struct penstock_op *op, const void *key, size_t key_bytes,
                                     const void *value, uint64_t bytes)
{
    penstock_prep(op, PENSTOCK_PUT, key, key_bytes);
    op->data = (void *)(uintptr_t)value;
    op->bytes = bytes;
}

static inline void penstock_prep_get(struct penstock_op *op, const void *key, size_t key_bytes, void *buf,
                                     uint64_t room)
{
    penstock_prep(op, PENSTOCK_GET, key, key_bytes);
    op->data = buf;
    op->bytes = room;
}

static inline void penstock_prep_get_range(struct penstock_op *op, const void *key, size_t key_bytes,
                                           uint64_t offset, void *buf, uint64_t bytes)
{
    penstock_prep_get(op, key, key_bytes, buf, bytes);
    op->flags = PENSTOCK_RANGE;
    op->offset = offset;
}

/**
 * penstock_batch() - do many operations, and return when all have ended
 * @ops, @count: any mix of operations; their order within the batch is not defined
 * Return: 0 when every operation succeeded, else the number of operations whose result is not 0, or -errno
 *         when nothing was begun (-EINVAL, -ECHILD).
 */
PENSTOCK_API int penstock_batch(struct penstock *store, struct penstock_op *ops, size_t count);

/* ---- reservations: reserve, write, commit ---- */

/*
 * A reservation is memory for a key's next value that only its writer sees. The four operations on it are
 * operations like others, for batches and queues; the key goes with each of them. A put is three of them in
 * one.
 *
 * Reserve refuses a key that exists (PENSTOCK_EXISTS, with its generation) or that another reservation has
 * (PENSTOCK_OWNED). With PENSTOCK_IF_GENERATION the key must have that generation instead, now and at the
 * commit. With PENSTOCK_REPLACE the reservation neither owns its key nor respects who does, and the last
 * commit wins.
 *
 * Write puts bytes at an offset, in any order, with PENSTOCK_RESERVATION_GAPS_MAX gaps at a time at the most.
 * Only what is fully written can be committed, so no byte that was not written ever becomes visible.
 *
 * Commit names key, handle, bytes, location and tier, as the reservation does. When one of them is wrong
 * (-EINVAL, -EMSGSIZE), when the reservation is not fully written (-ENODATA), or when the conditions do not
 * hold any more (PENSTOCK_EXISTS, PENSTOCK_STALE), the reservation is given up. To commit again what was
 * committed answers as the first time, for the last 256 of a session and shard. PENSTOCK_MISS: there is no
 * such reservation (any more): it was aborted, or its session ended. Aborting what is gone succeeds.
 * PENSTOCK_BUSY, -EFBIG and -EOPNOTSUPP, as of a durable commit: nothing was done, the reservation is there.
 *
 * A reservation belongs to its session. When that ends, by penstock_close(), with the process or with the
 * connection, its reservations are given up.
 */
enum {
    PENSTOCK_RESERVATION_LOCATION_BYTES_MAX = 223,
    PENSTOCK_RESERVATION_GAPS_MAX = 32,
};

#define PENSTOCK_BYTES_UNKNOWN UINT64_MAX /* reserve: the reservation grows as it is written */

enum penstock_tier { PENSTOCK_TIER_DRAM = 2 };

struct penstock_reservation {
    uint64_t handle;
    uint64_t bytes; /* of one that was reserved with PENSTOCK_BYTES_UNKNOWN: set it before the commit */
    uint8_t tier;
    uint8_t spare[5];
    uint16_t location_bytes;
    char location[PENSTOCK_RESERVATION_LOCATION_BYTES_MAX + 1]; /* pages, as text; "" for one that grows */
};

/* @reservation: written when the operation succeeds; borrowed like all else. Depth and attrs are as of a put.
 */
static inline void penstock_prep_reserve(struct penstock_op *op, const void *key, size_t key_bytes,
                                         uint64_t bytes, struct penstock_reservation *reservation)
{
    penstock_prep(op, PENSTOCK_RESERVE, key, key_bytes);
    op->reservation = reservation;
    op->bytes = bytes;
}

static inline void penstock_prep_write_at(struct penstock_op *op, const void *key, size_t key_bytes,
                                          const struct penstock_reservation *reservation, uint64_t offset,
                                          const void *data, uint64_t bytes)
{
    penstock_prep(op, PENSTOCK_WRITE_AT, key, key_bytes);
    op->handle = reservation->handle;
    op->offset = offset;
    op->data = (void *)(uintptr_t)data;
    op->bytes = bytes;
}

/* With PENSTOCK_CHECKSUM, value_crc is the value's. */
static inline void penstock_prep_reservation_commit(struct penstock_op *op, const void *key, size_t key_bytes,
                                                    const struct penstock_reservation *reservation)
{
    penstock_prep(op, PENSTOCK_RESERVATION_COMMIT, key, key_bytes);
    op->handle = reservation->handle;
    op->bytes = reservation->bytes;
    op->tier = reservation->tier;
    op->attrs = (void *)(uintptr_t)reservation->location;
    op->attr_bytes = reservation->location_bytes;
}

static inline void penstock_prep_reservation_abort(struct penstock_op *op, const void *key, size_t key_bytes,
                                                   const struct penstock_reservation *reservation)
{
    penstock_prep(op, PENSTOCK_RESERVATION_ABORT, key, key_bytes);
    op->handle = reservation->handle;
}

PENSTOCK_API int penstock_reserve(struct penstock *store, const void *key, size_t key_bytes, uint64_t bytes,
                                  uint16_t depth, struct penstock_reservation *reservation);
PENSTOCK_API int penstock_write_at(struct penstock *store, const void *key, size_t key_bytes,
                                   const struct penstock_reservation *reservation, uint64_t offset,
                                   const void *data, uint64_t bytes);
/* *@generation (may be NULL) gets the new value's, or that of the value in the way. */
PENSTOCK_API int penstock_reservation_commit(struct penstock *store, const void *key, size_t key_bytes,
                                             const struct penstock_reservation *reservation,
                                             uint64_t *generation);
PENSTOCK_API int penstock_reservation_abort(struct penstock *store, const void *key, size_t key_bytes,
                                            const struct penstock_reservation *reservation);
/**
 * penstock_reservation_memory() - a reservation's memory itself, to be written in place until the commit
 * What was not written before reads as zeros, and all of the reservation counts as written from now on.
 * @pieces: get its addresses, in the value's order
 * Return: their number, at most @max; -E2BIG more than that; -EOPNOTSUPP the store is not embedded ("mem:")
 * or the reservation grows; -ENOENT no such reservation; -EBUSY it is being written.
 */
PENSTOCK_API int penstock_reservation_memory(struct penstock *store, const void *key, size_t key_bytes,
                                             const struct penstock_reservation *reservation,
                                             struct iovec *pieces, int max);

/* ---- puts of unknown length ---- */

struct penstock_stream;

/**
 * penstock_stream_open() - begin to put a value whose length nobody knows yet
 * @put: key, flags, if_generation, depth and attributes as of a put; data and bytes are not looked at.
 * Borrowed during the call
 * One thread at a time. The value becomes visible with the commit, whole. Memory here: 1 MiB.
 * Return: 0, PENSTOCK_EXISTS, PENSTOCK_STALE, -errno.
 */
PENSTOCK_API int penstock_stream_open(struct penstock *store, const struct penstock_op *put,
                                      struct penstock_stream **out);
/* Return: 0, -errno; -ECONNRESET: the connection was lost, or a pool's key has another node now, and what had
 * been written is gone. After a failure only abort is left. */
PENSTOCK_API int penstock_stream_write(struct penstock_stream *stream, const void *data, uint64_t bytes);
/* Ends the stream in any case. *@generation (may be NULL) gets the new value's, or that in the way. */
PENSTOCK_API int penstock_stream_commit(struct penstock_stream *stream, uint64_t *generation);
/* NULL is fine. Returns NULL. */
PENSTOCK_API struct penstock_stream *penstock_stream_abort(struct penstock_stream *stream);

/* ---- commits: several keys at once ---- */

enum { PENSTOCK_COMMIT_OPS_MAX = 255 };

/**
 * penstock_commit() - check generations, then apply changes: all of them or none
 * @ops, @count: PENSTOCK_CHECK, PENSTOCK_PUT (with its conditions, PENSTOCK_CHECKSUM, attributes) and
 * PENSTOCK_DELETE (with PENSTOCK_IF_GENERATION), each key once; 1 to PENSTOCK_COMMIT_OPS_MAX of them. A
 * delete without a condition of a key that is not there does nothing, and its own result says PENSTOCK_MISS.
 * A commit is one moment: who has seen one of its changes sees all of them. With checks alone it says that
 * all keys had these generations at once. Listings may see it in part.
 * Return: 0 all applied. Else nothing was, and operations that stand in the way have results of their own:
 * PENSTOCK_STALE, PENSTOCK_EXISTS, PENSTOCK_MISS (a delete with a generation), -ENOSPC, -EDQUOT; the first of
 * these is returned. PENSTOCK_BUSY: other commits until the deadline. PENSTOCK_UNKNOWN: all of it was
 * applied, or nothing; or, of keys of a pool that have replicas, a part, if the node that served them crashed
 * meanwhile, or was silent for longer than its lease. -EINVAL a key twice, or another code or flag; -E2BIG
 * keys of more than 120 KiB; -EOPNOTSUPP keys of a pool that belong to several nodes, or may lie anywhere.
 */
PENSTOCK_API int penstock_commit(struct penstock *store, struct penstock_op *ops, size_t count);

/*
 * The request in which an operation that has ended was sent last; 0: it was not sent, or the store is
 * embedded. In 12 hexadecimal digits it is how the node's log names requests that took long (--slow-ms), and
 * how penstock_error() names one whose outcome is not known.
 */
PENSTOCK_API uint64_t penstock_request_id(const struct penstock_op *op);
/* Of a put that succeeded: how many copies of the value there are known to be, each on a host of its own:
 * over a pool as many of those asked for as were achieved, or as its home had then; 1 on other stores. */
PENSTOCK_API uint32_t penstock_copies(const struct penstock_op *op);

/* ---- queues: submit now, reap later ---- */

struct penstock_queue;

/* A queue belongs to one thread at a time. Return: 0 or -errno. */
PENSTOCK_API int penstock_queue_open(struct penstock *store, struct penstock_queue **out);
/* Waits for what is underway. Returns NULL. */
PENSTOCK_API struct penstock_queue *penstock_queue_close(struct penstock_queue *queue);
/* Begins operations. Operations submitted together travel together. Return: 0 or -errno when none was begun.
 */
PENSTOCK_API int penstock_submit(struct penstock_queue *queue, struct penstock_op *ops, size_t count);
/**
 * penstock_reap() - collect operations that have ended
 * @ops: up to @max pointers are written
 * @timeout_ms: how long to wait for the first; 0: do not wait; -1: until there is one or nothing is underway
 * Return: their number (0: none), -errno.
 */
PENSTOCK_API int penstock_reap(struct penstock_queue *queue, struct penstock_op **ops, int max,
                               int timeout_ms);
/* Becomes readable when a reap may find something; call penstock_reap() with 0 until it returns 0 before
 * waiting on it. */
PENSTOCK_API int penstock_queue_fd(struct penstock_queue *queue);

/* ---- simple calls: one key, done on return ---- */

PENSTOCK_API int penstock_put(struct penstock *store, const void *key, size_t key_bytes, const void *value,
                              uint64_t bytes);
/* Reads the value into @buf. *@value_bytes (may be NULL) gets its size, on -ENOBUFS too. */
PENSTOCK_API int penstock_get(struct penstock *store, const void *key, size_t key_bytes, void *buf,
                              uint64_t room, uint64_t *value_bytes);
/**
 * penstock_get_wait() - read a value that may not be there yet
 * @timeout_ms: how long to wait for the key; 0: not at all
 * Waits without holding up other operations of the store, and ends with the first write of the key. With the
 * PENSTOCK_WAIT flag any get of a batch or a queue does the same.
 * Return: as penstock_get(): PENSTOCK_MISS when the key did not come; -EDQUOT when more gets wait than the
 * node grants one session (--session-waits) or one handle has (512; embedded 4,096). A node that is gone is
 * looked for until @timeout_ms and the store's timeout are over.
 */
PENSTOCK_API int penstock_get_wait(struct penstock *store, const void *key, size_t key_bytes, void *buf,
                                   uint64_t room, uint64_t *value_bytes, uint32_t timeout_ms);
PENSTOCK_API int penstock_get_range(struct penstock *store, const void *key, size_t key_bytes,
                                    uint64_t offset, void *buf, uint64_t bytes);
/* PENSTOCK_OK or PENSTOCK_MISS. */
PENSTOCK_API int penstock_exists(struct penstock *store, const void *key, size_t key_bytes);
/* How many of @keys, from the first on, exist without a gap: *@count. One round for all. */
PENSTOCK_API int penstock_exists_consecutive(struct penstock *store, const struct iovec *keys,
                                             size_t key_count, size_t *count);
PENSTOCK_API int penstock_delete(struct penstock *store, const void *key, size_t key_bytes);
/* Keeps a key from eviction for @ttl_ms, or with 0 until as many unpins. The pin is the key's and outlives
 * the session, but counts against the session that made it (-EDQUOT). In a pool the node keeps it that serves
 * the key then: when the key goes to another node, its pins end. */
PENSTOCK_API int penstock_pin(struct penstock *store, const void *key, size_t key_bytes, uint64_t ttl_ms);
PENSTOCK_API int penstock_unpin(struct penstock *store, const void *key, size_t key_bytes);

/* ---- many keys ---- */

/* Deletes every key with @prefix (0 bytes: all keys). *@deleted (may be NULL) gets their number; of keys that
 * may lie anywhere in a pool each copy counts. -EHOSTUNREACH: nodes of a pool that may have some are away. */
PENSTOCK_API int penstock_delete_prefix(struct penstock *store, const void *prefix, size_t prefix_bytes,
                                        uint64_t *deleted);
/* Deletes keys in [start, end); an empty end: no end. */
PENSTOCK_API int penstock_delete_range(struct penstock *store, const void *start, size_t start_bytes,
                                       const void *end, size_t end_bytes, uint64_t *deleted);
/* Deletes all but pinned keys, which go when their last pin does: *@remaining (may be NULL) of them are left.
 */
PENSTOCK_API int penstock_clear(struct penstock *store, uint64_t *remaining);

struct penstock_list;

/* A listing in memcmp order of keys in [start, end) that begin with prefix. Keys present throughout come
 * exactly once. It is whole or fails: -EHOSTUNREACH while nodes of a pool that may have some are away. */
struct penstock_list_options {
    size_t size;
    const void *prefix, *start, *end;
    size_t prefix_bytes, start_bytes, end_bytes;
};

struct penstock_entry {
    const void *key; /* borrowed until the next call on the listing */
    size_t key_bytes;
    uint64_t value_bytes;
    uint64_t generation;
    int cache; /* may be evicted */
    uint16_t depth;
    uint8_t on_ssd;    /* on the SSD, not in memory */
    uint8_t on_device; /* in device memory alone */
    uint8_t copies;    /* that its put asked a pool for ("?replicas=R"); 0: none in particular */
};

PENSTOCK_API int penstock_list_open(struct penstock *store, const struct penstock_list_options *options,
                                    struct penstock_list **out);
/* Return: 1 and *@entry, 0 at the end, -errno. */
PENSTOCK_API int penstock_list_next(struct penstock_list *list, struct penstock_entry *entry);
PENSTOCK_API struct penstock_list *penstock_list_close(struct penstock_list *list);

/* ---- views: values read in place ---- */

struct penstock_view {
    const void *data; /* the whole value, read-only, contiguous */
    uint64_t bytes;
    uint64_t generation;
    void *reserved[4];
};

/**
 * penstock_view() - look at a value without copying it
 * The bytes stay as they are until penstock_view_release(), whatever happens to key and session. Possible
 * embedded
 * ("mem:"), over a unix socket to a node of the same user and host, and in a pool of values on such a node. A
 * value in several pieces is mapped behind one another. Return: 0, PENSTOCK_MISS, -EOPNOTSUPP no shared
 * memory with this store, -EMFILE too many views, -EDQUOT too many bytes in them, -errno.
 */
PENSTOCK_API int penstock_view(struct penstock *store, const void *key, size_t key_bytes,
                               struct penstock_view *view);
PENSTOCK_API void penstock_view_release(struct penstock *store, struct penstock_view *view);

/* ---- watches: what happens to the keys of a prefix ---- */

struct penstock_watch;

enum penstock_event_what {
    PENSTOCK_EVENT_PUT = 1,
    PENSTOCK_EVENT_DELETED = 2,
    PENSTOCK_EVENT_EVICTED = 3,
    PENSTOCK_EVENT_MISSED = 4, /* too slow: `missed` events are gone; list the prefix again */
    PENSTOCK_EVENT_RESET = 5,  /* a connection or a pool's primaries went: any may be gone; list the prefix */
    PENSTOCK_EVENT_MOVED = 6,  /* for PENSTOCK_WATCH_MOVES: to the SSD or a device, or back; the same value */
};

struct penstock_event {
    int what;
    int on_ssd;      /* where the value lies, or lay: on the SSD alone, not in memory */
    int on_device;   /* the same: in device memory alone */
    const void *key; /* borrowed until the next call on the watch */
    size_t key_bytes;
    uint64_t generation; /* of the value that came or went */
    uint64_t value_bytes;
    uint64_t missed;
};

/**
 * penstock_watch_open() - be told of writes, deletions and evictions
 * @prefix, @prefix_bytes: of the keys; 0 bytes: all keys
 * @out: the watch, which belongs to one thread at a time; end with penstock_watch_close()
 * From its return on, every change of such a key becomes one event; the events of one key come in order. The
 * store keeps 64 KiB of them in each shard until they are fetched, and tells how many it dropped when that
 * was not enough. Events of a shard that come after MISSED or RESET are newer than all that are gone: who
 * lists the prefix then knows everything again. Return: 0, -EMFILE too many watches, -errno.
 */
PENSTOCK_API int penstock_watch_open(struct penstock *store, const void *prefix, size_t prefix_bytes,
                                     struct penstock_watch **out);

enum penstock_watch_flag {
    PENSTOCK_WATCH_MOVES = 1, /* values that move between memory and SSD are events, too */
};

struct penstock_watch_options {
    size_t size;
    const void *prefix; /* of the keys */
    size_t prefix_bytes;
    uint32_t flags;
};

/* penstock_watch_open() with flags. Zero-initialise @options, set `size`. -EINVAL: unknown flags. */
PENSTOCK_API int penstock_watch_open_with(struct penstock *store,
                                          const struct penstock_watch_options *options,
                                          struct penstock_watch **out);
/**
 * penstock_watch_next() - the next event
 * @timeout_ms: how long to wait for it; 0: do not wait; -1: as long as it takes
 * Return: 1 and *@event, 0 none came, -errno: the node could not be reached; a later call tries again.
 */
PENSTOCK_API int penstock_watch_next(struct penstock_watch *watch, int timeout_ms,
                                     struct penstock_event *event);
/* Becomes readable when there may be an event; call penstock_watch_next() with 0 until it returns 0 before
 * waiting on it. */
PENSTOCK_API int penstock_watch_fd(struct penstock_watch *watch);
/* Close watches before their store. Returns NULL. */
PENSTOCK_API struct penstock_watch *penstock_watch_close(struct penstock_watch *watch);

/* ---- followers: a store that has what another one has ---- */

struct penstock_follow;

/* Zero every member that is not meant; `size` is sizeof(struct penstock_follow_options). */
struct penstock_follow_options {
    size_t size;
    const char *url;         /* of the store that is followed */
    const char *secret_file; /* its secret; NULL: none */
    uint32_t timeout_ms;     /* of a call to it; 0: 2 s */
    const void *prefix;      /* of the keys that are followed; 0 bytes: all keys */
    size_t prefix_bytes;
    void (*log)(void *ctx, const char *line); /* one event a line, from the follower's thread; NULL: silent */
    void *log_ctx;
};

/**
 * penstock_follow_open() - make a store the same as another one, and keep it so
 * @mirror: gets the values, attributes and depths of all keys with the prefix, and loses its other keys that
 * have it; borrowed until penstock_follow_close()
 * @options: borrowed during the call
 * Nothing is written to the store that is followed. What that evicts is deleted here; what @mirror evicts is
 * its own affair. Where changes may have been missed both listings are compared, and every value is read
 * again: at the start, and whenever either store was away. Values that @mirror has no room for stay out.
 * Times (PENSTOCK_TTL) are not copied. This is done by a thread of its own, which looks for a store that is
 * not there until it comes. "mem:?follow=URL&prefix=PREFIX" does the same from open to close. Return: 0,
 * -EINVAL no URL, or that of @mirror itself, -ENAMETOOLONG, -ENOMEM, -EAGAIN no thread.
 */
PENSTOCK_API int penstock_follow_open(struct penstock *mirror, const struct penstock_follow_options *options,
                                      struct penstock_follow **out);
/* Ends it, once the call that it is in has ended. NULL is fine. Returns NULL. */
PENSTOCK_API struct penstock_follow *penstock_follow_close(struct penstock_follow *follow);

/* ---- blocks that engines hold in memory of their own ---- */

/*
 * An engine says which blocks of its cache it holds, and on which tier; a router asks who has how much of a
 * prompt. The store is a pool, or its master, opened as a node; others: -EOPNOTSUPP. Names are any bytes,
 * mostly digests. What the master knows of a member ends with its membership, and all of it with the master.
 * It is advice: two names in 2^64 may be taken for one.
 */
enum penstock_block_tier {
    PENSTOCK_BLOCK_UNKNOWN,
    PENSTOCK_BLOCK_HBM,
    PENSTOCK_BLOCK_DRAM,
    PENSTOCK_BLOCK_SSD,
    PENSTOCK_BLOCK_TIERS
};

struct penstock_block_node {
    uint8_t id[16];       /* of the member, as in --node-id */
    char address[128];    /* "host:port"; "" where it has none */
    uint32_t block_count; /* of those asked for, on whichever tier */
};

/**
 * penstock_blocks_report() - a member of the pool holds blocks on a tier, too
 * @node_id: of the member
 * @refused: gets how many the master has no room for; NULL is fine
 * Return: 0, -EHOSTUNREACH there is no such member, -EINVAL an empty name or no such tier, -errno.
 */
PENSTOCK_API int penstock_blocks_report(struct penstock *store, const uint8_t node_id[16], int tier,
                                        const struct iovec *names, size_t count, size_t *refused);
/* It no longer does; other tiers keep theirs. Names that were not reported, and those of no member, are fine.
 */
PENSTOCK_API int penstock_blocks_revoke(struct penstock *store, const uint8_t node_id[16], int tier,
                                        const struct iovec *names, size_t count);
/* The same for all that it holds on the tier. */
PENSTOCK_API int penstock_blocks_revoke_tier(struct penstock *store, const uint8_t node_id[16], int tier);
/**
 * penstock_blocks_match() - who has which of these blocks
 * @is_hit: whether this is for a user's request, which counts for each block that somebody has
 * @nodes: those that have any; of each 256 names 64 nodes at the most, those that have the first
 * @tiers: @count bytes for each of the nodes: bit 1 << tier of byte i is set when it has name i there. A name
 * that comes twice may be answered once
 * @node_count: in: how many nodes and rows of @tiers there is room for; out: how many have any
 * Return: 0, PENSTOCK_BUSY, -errno.
 */
PENSTOCK_API int penstock_blocks_match(struct penstock *store, const struct iovec *names, size_t count,
                                       int is_hit, struct penstock_block_node *nodes, uint8_t *tiers,
                                       size_t *node_count);
/* How often each was a hit lately; 0 where nothing is remembered. Asking is none. Return: 0 or -errno. */
PENSTOCK_API int penstock_blocks_hits(struct penstock *store, const struct iovec *names, size_t count,
                                      uint32_t *hits);

/* ---- about the store ---- */

enum {
    PENSTOCK_TIMES = 15, /* kinds of operations */
    PENSTOCK_TIME_BUCKETS = 26,
};

/* How long a node's operations of one kind took, each as long as its request: from its message to its reply's
 * end, without what a get waits for its key. */
struct penstock_time {
    uint64_t total_ns;                      /* of all of them together */
    uint64_t counts[PENSTOCK_TIME_BUCKETS]; /* below 256 ns, from there below 512 ns, ...; the last: longer */
};

/* Figures of the whole store. `size` in: sizeof(struct penstock_stat). */
struct penstock_stat {
    size_t size;
    uint64_t page_bytes, pages, pages_used, arenas, shards;
    uint64_t keys, value_bytes, cache_keys, pinned;
    uint64_t puts, gets, hits, misses, deletes, evictions, evicted_bytes, moved, no_space;
    uint64_t slab_pages, slab_bytes, index_bytes;
    uint64_t rss_anon_bytes; /* of the process that holds the store */
    uint64_t sessions;       /* connected to the node */
    uint64_t uptime_ms;
    uint64_t pinned_bytes;        /* of values with a pin, in transfer or viewed */
    uint64_t reservations;        /* reserved and not yet committed */
    uint64_t reservation_bytes;   /* of memory in them */
    uint64_t waits;               /* gets that wait for their key */
    uint64_t watches;             /* of prefixes, counted in every shard */
    uint64_t ssd_keys, ssd_bytes; /* whose values are on SSD alone, and bytes of them */
    uint64_t demotions,
        demoted_bytes;               /* values moved from memory to SSD, and bytes that were written for it */
    uint64_t promotions;             /* values brought back into memory */
    uint64_t fetches, fetched_bytes; /* reads of the SSD for values */
    uint64_t ssd_corrupt;            /* values on SSD that were found damaged; never served */
    uint64_t ssd_errors;             /* reads and writes that the SSD failed */
    uint64_t ssd_hits;               /* operations that found their value on SSD alone */
    uint64_t ssd_capacity_bytes,
        ssd_live_bytes; /* that it can keep; of values there, also of those in memory */
    uint64_t ssd_appended_bytes, ssd_written_bytes; /* of values written there; written there in all */
    uint64_t ssd_moved_bytes, ssd_reclaimed_bytes;  /* of values moved to make room; of segments taken back */
    uint64_t restored_keys, restored_dropped;       /* found at the start; records that were not whole */
    uint64_t restored_ms;                           /* how long that took */
    uint64_t nodes;                                 /* of the pool */
    /* What this handle did over a pool: */
    uint64_t pool_master_requests, pool_node_requests; /* messages sent */
    uint64_t pool_located;                             /* keys whose place was known without a master */
    uint64_t pool_existed;                             /* puts of what was there, of which no byte was sent */
    uint64_t pool_put_bytes;                           /* of values sent to nodes */
    uint64_t pool_retries;                             /* operations tried again */
    uint64_t pool_failovers;                           /* operations that went on to another node */
    /* Whom the node did not let in, for its secret, its version, want of room, or as no client of ours: */
    uint64_t refused_secret, refused_version, refused_busy, refused_other;
    uint64_t malformed;    /* messages that broke the protocol; their sessions end */
    uint64_t copies_asked; /* keys whose put asked for several copies */
    /* And for TLS: without it, no 1.3 or nothing in common, no certificate or one that proves nothing, one
     * outside of its time, records that were replayed or changed; or it did not believe the node's
     * certificate. */
    uint64_t refused_plain, refused_tls, refused_certificate, refused_expired, refused_replayed,
        refused_by_client;
    uint64_t forbidden; /* operations beyond what their client's grant allows */
    struct penstock_time times[PENSTOCK_TIMES];
    uint64_t hbm_keys, hbm_bytes;                /* whose values are in device memory, and bytes of them */
    uint64_t hbm_capacity_bytes, hbm_used_bytes; /* of device memory for values; of its pages in use */
    uint64_t hbm_promotions, hbm_demotions;      /* values moved from memory there; from there elsewhere */
    uint64_t hbm_hits;                           /* operations that found their value there */
    uint64_t hbm_errors;                         /* copies that the device failed */
};

PENSTOCK_API int penstock_stat(struct penstock *store, struct penstock_stat *stat);
/* What stat->times[@index] counts: "get", "put", ...; "mixed": of requests with several kinds. NULL: beyond.
 */
PENSTOCK_API const char *penstock_time_name(unsigned index);
/* What the node counts as a pool's master, and for each of its grants, if this client may administer it: a
 * line for each figure, its name, a blank and its value, and a NUL. Of a directory in shares the sums; shares
 * that do not answer are directory_shards_silent, and add nothing. Return: 0, -EOPNOTSUPP the node has
 * neither, -ENOBUFS more than @room (16 KiB suffice for a master; grants beyond @room are left out), -errno.
 */
PENSTOCK_API int penstock_pool_stat(struct penstock *store, char *text, size_t room);

enum penstock_pool_node_flag {
    PENSTOCK_NODE_DRAINS = 1,  /* it is to be needed for nothing any more ... */
    PENSTOCK_NODE_DRAINED = 2, /* ... and is not: nothing is lost when it stops */
    PENSTOCK_NODE_STUCK = 8,   /* ... and goes on to be: the others are on too few hosts, until one joins */
    PENSTOCK_NODE_SUSPECT = 4, /* it has not been heard of lately */
};

struct penstock_pool_node {
    uint8_t id[16];     /* as in --node-id */
    char address[128];  /* "host:port", or a unix socket's path */
    uint32_t member;    /* its number, while it is one */
    uint32_t flags;     /* enum penstock_pool_node_flag */
    uint32_t primaries; /* partitions of the pool's 4,096 that it serves, */
    uint32_t copies;    /* and of which it has copies */
    uint64_t keys_left; /* of one that drains: of those that may lie anywhere, that too few others have */
    uint64_t capacity_bytes, used_bytes; /* of its memory */
};

/* The members of a pool, as its master sees them. The store is a pool, or its master, opened as a node.
 * *@count: in: how many there is room for; out: how many there are. Return: 0, -EOPNOTSUPP, -errno. */
PENSTOCK_API int penstock_pool_nodes(struct penstock *store, struct penstock_pool_node *nodes, size_t *count);
/* What its flags say, in a word: "serving", "draining", "stuck", "drained", "silent". */
PENSTOCK_API const char *penstock_pool_node_state(const struct penstock_pool_node *node);
/* From now on the node is given nothing new, and what it has goes to others; with @drains 0 no more so. It
 * goes on serving meanwhile. Ends with its membership. Return: 0, -EHOSTUNREACH there is no such member,
 * -EOPNOTSUPP, -errno. */
PENSTOCK_API int penstock_pool_drain(struct penstock *store, const uint8_t node_id[16], int drains);
/* What was lost is known, and taken as deleted: from now on a key that is not found where it may have been is
 * a MISS rather than LOST. What is lost later is LOST again. A store that has said LOST before may say it
 * once more. Return: 0, -EOPNOTSUPP, -errno. */
PENSTOCK_API int penstock_pool_forgive(struct penstock *store);

/**
 * penstock_flush() - make all that has been written durable
 * Returns when every write and every delete that had ended before the call would survive a crash; values with
 * an end do not. Wants a store with an SSD. Return: 0, -EOPNOTSUPP the store has no SSD. Else all is saved
 * that could be: -EFBIG but values larger than its segments, -ENOSPC the SSD is full, -EIO it failed,
 * -EBADMSG but values whose checksum is wrong, -errno.
 */
PENSTOCK_API int penstock_flush(struct penstock *store);
/* Round trip to every shard of the store; *@round_trip_ns gets the slowest. */
PENSTOCK_API int penstock_ping(struct penstock *store, uint64_t *round_trip_ns);
/* The way bytes travel: "posix", "tcp", "memory". */
PENSTOCK_API const char *penstock_lane(struct penstock *store);

/*
 * Memory that will be used for large transfers often. It may be a GPU's, by its address in CUDA: then puts,
 * gets and writes of reservations that wait take their values from there and bring them there, through 4 MiB
 * of the host's for each; those of a queue, and pieces of it, are -EOPNOTSUPP. Return: 0, -EINVAL null, empty
 * or not registered, -ENOSPC more than 1,024 (of devices 256), -ERANGE the device's memory ends before.
 */
PENSTOCK_API int penstock_register(struct penstock *store, void *addr, size_t bytes);
PENSTOCK_API int penstock_deregister(struct penstock *store, void *addr);

/* ---- serving ---- */

struct penstock_node;

/* Options by their names in `penstockd --help`, without the dashes. Zero-initialise, set `size`. */
struct penstock_node_options {
    size_t size;
    const char *const *settings;              /* "dram=4G", "listen=127.0.0.1:7000", ...; ends with NULL */
    void (*log)(void *ctx, const char *line); /* one event a line, from the node's threads; NULL: silent */
    void *log_ctx;
    uint32_t connect_ms; /* with `master`: time until the pool counts on the node; 0: 5 s */
};

/* Serves a node from within this process, on threads of its own, until closed. With `master` it returns when
 * the node is a member that the pool puts values on. Return: 0 or -errno (penstock_error() names the setting,
 * or the master and why it did not take the node in: -ETIMEDOUT, -ECONNREFUSED, -EACCES and the like). */
PENSTOCK_API int penstock_node_open(const struct penstock_node_options *options, struct penstock_node **out);
/* The address of the @index-th listening socket as penstock_open() takes it, NULL beyond the last. */
PENSTOCK_API const char *penstock_node_url(struct penstock_node *node, int index);
/* The number of keys stored now. */
PENSTOCK_API uint64_t penstock_node_keys(struct penstock_node *node);
PENSTOCK_API struct penstock_node *penstock_node_close(struct penstock_node *node);

#ifdef __cplusplus
}
#endif

#endif
