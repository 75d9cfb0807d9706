/* SPDX-License-Identifier: Apache-2.0 */
/* client_priv.h: a store as its files see it: a backend that carries operations out, and who waits for them.
 */
#ifndef PST_CLIENT_PRIV_H
#define PST_CLIENT_PRIV_H

#include "base/base.h"
#include "base/error.h"
#include "call/call.h"
#include "client/staged_memory_priv.h"

#include <penstock/penstock.h>

#include <pthread.h>
#include <stdatomic.h>

#define PST_STORE_MAGIC 0x73746f72u
#define PST_QUEUE_MAGIC 0x71756575u

struct pool;
struct pst_local;
struct penstock;

/* Where operations are carried out: in this process, or by a node. Called with the store's lock held unless
 * said. */
struct pst_backend {
    bool locks_itself; /* needs no lock of the store; operations end within submit */
    void (*submit)(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done);
    void (*flush)(struct penstock *store);
    bool (*poll)(struct penstock *store); /* true: something happened */
    /*
     * Of a backend that locks itself, in place of poll: does operations of @done that waited and are ready,
     * and waits for more until it holds @count, nothing of it waits, or the deadline. Return: when the next
     * one's time is over. NULL: poll.
     */
    uint64_t (*await)(struct penstock *store, const struct pst_op_list *done, size_t count,
                      uint64_t deadline_ns);
    int (*fd)(struct penstock *store);  /* -1: nothing to wait for */
    int (*arm)(struct penstock *store); /* 0: the descriptor wakes */
    uint32_t (*shards)(struct penstock *store);
    uint32_t (*shard_of)(struct penstock *store, struct pst_bytes key);
    uint64_t (*places)(struct penstock *store); /* pst_places(); NULL: keys stay */
    /*
     * Of a store of several nodes; NULL: there is one. Shards keep their numbers, so some lead nowhere:
     * shard_at is a shard's place in its node, or -1. refresh, which takes the lock itself, brings what is
     * known of the nodes up to date, and finds a way to each; look asks for the pool map alone. whole:
     * members that are away have no keys of a range, or -EHOSTUNREACH. finds: an operation on the key could
     * come to the shard's node. layout is another number when nodes or primaries are others. one_owner: one
     * node can see to all of a commit. Return of refresh, whole and one_owner: 0 or -errno, explained.
     */
    int (*shard_at)(struct penstock *store, uint32_t shard);
    int (*refresh)(struct penstock *store);
    int (*whole)(struct penstock *store, struct pst_bytes start, struct pst_bytes end);
    bool (*finds)(struct penstock *store, uint32_t shard, struct pst_bytes key);
    void (*look)(struct penstock *store, struct penstock_op *op, struct pst_op_list *done);
    uint64_t (*layout)(struct penstock *store);
    int (*one_owner)(struct penstock *store, const struct penstock_op *ops, size_t count);
    void (*stat)(struct penstock *store, struct penstock_stat *stat); /* adds what it knows itself */
    const char *(*lane)(struct penstock *store);
    /* The shard to ask for a value that is to be looked at. Takes the lock itself. NULL: shard_of. Return: 0,
     * or what a look-up of the key came to, explained. */
    int (*shard_to_view)(struct penstock *store, struct pst_bytes key, int *shard);
    /* Makes [piece.offset, + piece.bytes) of the shard's arenas readable here, as @session named them.
     * Return: 0 or -errno. */
    int (*map)(struct penstock *store, int shard, uint64_t session, const struct pst_wire_piece *pieces,
               uint32_t count, struct penstock_view *view);
    void (*unmap)(struct penstock *store, struct penstock_view *view);
    /* True while the session that gave the view lives. */
    bool (*view_lives)(struct penstock *store, const struct penstock_view *view);
    int (*add_memory)(struct penstock *store, void *addr, size_t bytes, void **handle);
    void (*drop_memory)(struct penstock *store, void *handle);
    void (*close)(struct penstock *store);
};

struct pst_memory {
    void *addr;
    void *handle;
};

enum { MEMORY_MAX = 1024 };

struct penstock {
    uint32_t magic;
    uint32_t forks; /* of this process when the store was opened */
    const struct pst_backend *backend;
    struct pst_local *local;
    struct pool *pool;
    struct pst_channel *channel;
    struct pst_arena_map *arena_map; /* of the channel's present session */
    pthread_mutex_t lock;
    pthread_cond_t progress; /* something ended, or the leader left */
    bool led;                /* a thread polls for all */
    _Atomic uint32_t crowd;  /* threads that want the lock */
    struct pst_memory memory[MEMORY_MAX];
    uint32_t memory_count;
    struct pst_staged staged;
    struct pst_map *map;            /* of the pool that the node is the master of; NULL: not asked for yet */
    uint32_t watch_sides;           /* shards that its watches watch */
    struct pst_op_list released;    /* of views, heap; nobody waits for them */
    size_t releases;                /* underway, or in that list */
    struct penstock_follow *follow; /* of its URL; NULL: none */
    char url[320];                  /* for people: cut off where it is longer */
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    struct pst_tls *tls; /* of its channels; NULL: plain */
};

struct penstock_queue {
    uint32_t magic;
    struct penstock *store;
    struct pst_op_list done;
    size_t underway;
    int poll_fd; /* epoll over the two below and the port's, made when asked for; -1 */
    int timer_fd;
    int wake_fd;
};

extern const struct pst_backend pst_backend_node;
extern const struct pst_backend pst_backend_local;

/* ---- store.c ---- */

/* Return: 0, -EINVAL not a store, -ECHILD another process's. */
int pst_store_check(struct penstock *store);
/* Around calls of the backend; an embedded store locks its shards itself. */
void pst_enter(struct penstock *store);
void pst_leave(struct penstock *store);
/* Submits @count operations and waits for all: to @shards, by key if NULL, or as they are given. */
void pst_run(struct penstock *store, struct penstock_op *ops, size_t count, const int *shards);
void pst_run_given(struct penstock *store, struct penstock_op *ops, size_t count);
/* The same with a result: the operation's, with its fault kept for penstock_error(). */
int pst_run_one(struct penstock *store, struct penstock_op *op, int shard);
/* The same on a key, of whatever the caller says is a store. */
int pst_do_one(struct penstock *store, struct penstock_op *op);
/* Keeps a text for a bad result and returns it. */
int pst_explain(const struct penstock *store, const struct penstock_op *op, int result);
/* Waits until @done holds @count operations, or @deadline_ns has passed. */
void pst_wait(struct penstock *store, const struct pst_op_list *done, size_t count, uint64_t deadline_ns);
uint32_t pst_shards(struct penstock *store);
uint64_t pst_places(struct penstock *store);              /* another number when keys are at other shards */
int pst_shard_at(struct penstock *store, uint32_t shard); /* its place in its node; -1: nobody has it now */
/* Before all shards are asked: they are those of the nodes there are now; none of a range is with members
 * that are away. Return: 0 or -errno, explained. */
int pst_refresh(struct penstock *store);
int pst_whole(struct penstock *store, struct pst_bytes start, struct pst_bytes end);

/* ---- view.c ---- */

/* Waits for the releases underway. The store is entered. */
void pst_views_settle(struct penstock *store);

/* ---- list.c ---- */

/* penstock_list_open() with what nodes have of keys for which others are asked. */
int pst_list_open_copies(struct penstock *store, const struct penstock_list_options *options,
                         struct penstock_list **out);
/* The first key behind all that begin with the prefix. Return: its length, 0: there is none. */
size_t pst_prefix_end(const void *prefix, size_t prefix_bytes, uint8_t end[PENSTOCK_KEY_BYTES_MAX]);

/* ---- queue.c ---- */

/* Everything that had ended is about to be reaped: the descriptor waits for what comes next. */
void pst_queue_drained(struct penstock_queue *queue);
/* Has the descriptor wake for what the port has now, once, and for what comes: another thread may lead, and
 * only it takes from the port what made the descriptor readable. Anew after each look, since a new connection
 * has a new port, often with the number of the old one. Return: 0 or -errno. */
int pst_queue_watch_port(struct penstock_queue *queue);
/* The descriptor is to wake at @ns; UINT64_MAX: never. */
void pst_queue_until(struct penstock_queue *queue, uint64_t ns);

/* ---- local.c, node/node.c, pool.c ---- */

struct pst_url;

int pst_local_open(struct penstock *store, const char *query, const struct penstock_options *options);
int pst_remote_open(struct penstock *store, const struct pst_url *url,
                    const struct penstock_options *options);
/* @addresses: of masters, with commas between them. @replicas: copies of what may lie anywhere, at the least.
 */
int pst_pool_open(struct penstock *store, const char *addresses, const struct pst_channel_options *options,
                  const char *host, uint32_t replicas);

/* ---- url.c ---- */

/* A store's URL, taken apart. */
struct pst_url {
    bool embedded;
    bool pool;
    char address[300]; /* of a node, as pst_boot_address_parse() takes it; of a pool's masters */
    const char *query; /* behind the '?', inside the URL; "" without one */
};

/* Return: 0 or -EINVAL, explained. */
int pst_url_parse(const char *text, struct pst_url *out);

struct pst_options;
/* The defaults, and over them "a=b&c=d". Return: 0 or -errno, explained. */
int pst_query_read(const struct pst_options *table, void *settings, const char *query);

#endif
