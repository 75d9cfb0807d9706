/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.h: which keys the data store knows, who has each of them (its sources), for how long and for
 * which service. It is a SQLite file of one process, so that a restart forgets nothing that was acknowledged.
 *
 * A source is an address from which others fetch a key. The store pod is a source that stays; a peer's
 * expires, unless it is published again. A key is there while it has a source. Requests underway are counted
 * in memory alone: a restart begins at none.
 *
 * Not thread-safe: one caller at a time, which is not in a callback. Calls wait for the disk. Time is handed
 * in, in ms since 1970. Keys are normal forms (`key.h`) of 1 byte or more, but any bytes are kept.
 *
 * Every call may return, besides what it says, and then nothing has changed:
 *     -EINVAL     a key or a text is empty or too long
 *     -ENOSPC     the file is as large as it may be, or the disk is full
 *     -EBADMSG    the file is damaged
 *     -EIO, -ENOMEM
 */
#ifndef PST_FILES_CATALOGUE_H
#define PST_FILES_CATALOGUE_H

#include "base/base.h"
#include "base/limits.h"

enum {
    PST_SOURCE_REQUESTS_MAX = 30, /* underway at one source of a key */
    PST_SOURCE_LIFE_MS = 3600 * 1000,
    PST_REQUEST_LIFE_MS = 600 * 1000, /* of a request that nobody completes */
    PST_WITHDRAWN_LIFE_MS = 24 * 3600 * 1000,
    PST_EXPIRED_MAX = 4096, /* sources in one call */
    PST_SATURATED_MAX = 64, /* addresses that a caller is told */
};

/* Bytes of texts, without their NUL. */
enum {
    PST_IP_BYTES_MAX = 63,
    PST_NAME_BYTES_MAX = 253, /* a pod's, a namespace's, a service's */
    PST_SRC_PATH_BYTES_MAX = 4096,
    PST_DATA_TYPE_BYTES_MAX = 63,
};

struct pst_catalogue;

/**
 * pst_catalogue_open() - open the file @path, or make it
 * @bytes_max: of the file, 64 KiB or more; a larger one keeps its size and does not grow
 * Return: 0 and *@out; on failure with a text that names the file. -EBADMSG: damaged. -EEXIST: another
 * program's. -EPROTONOSUPPORT: a later version's. -EBUSY: another process has it. -EPERM: another user may
 * write it.
 */
int pst_catalogue_open(const char *path, uint64_t bytes_max, struct pst_catalogue **out);
/* Returns NULL. */
struct pst_catalogue *pst_catalogue_close(struct pst_catalogue *catalogue);

/* Texts are borrowed during a call or a callback; NULL and "" are the same, and what callbacks get is never
 * NULL. Of all but @ip. */
struct pst_source {
    const char *ip, *pod_name, *namespace, *src_path, *data_type;
};

enum pst_lifespan {
    PST_LIFESPAN_UNSAID,   /* as it was; of a new key the cluster's */
    PST_LIFESPAN_CLUSTER,  /* until somebody deletes it */
    PST_LIFESPAN_RESOURCE, /* as its service's */
    PST_LIFESPAN_COUNT,
};

/*
 * Adds @source to @key, or says again that it is there. @service: NULL as it was; otherwise @key is that
 * service's, of the source's namespace. Return: 0 once it is on disk.
 */
int pst_catalogue_publish(struct pst_catalogue *catalogue, struct pst_bytes key,
                          const struct pst_source *source, enum pst_lifespan lifespan, const char *service,
                          uint64_t now_ms);
/* The same for the store pod, in place of the one that @key had. */
int pst_catalogue_store(struct pst_catalogue *catalogue, struct pst_bytes key,
                        const struct pst_source *source, enum pst_lifespan lifespan, const char *service,
                        uint64_t now_ms);

/*
 * The same for a peer that says again by itself what it published before. If @key was deleted meanwhile, its
 * sources were withdrawn, and stay so until pst_catalogue_publish(); the catalogue knows the last 65,536 of
 * them for PST_WITHDRAWN_LIFE_MS. Return: 1 it is a source, 0 it was withdrawn.
 */
int pst_catalogue_renew(struct pst_catalogue *catalogue, struct pst_bytes key,
                        const struct pst_source *source, enum pst_lifespan lifespan, const char *service,
                        uint64_t now_ms);

/* Return: 1, or 0 @ip was no source of @key. */
int pst_catalogue_remove_source(struct pst_catalogue *catalogue, struct pst_bytes key, const char *ip);
/* Forgets peers' sources that are older than PST_SOURCE_LIFE_MS, the oldest first. Return: how many;
 * PST_EXPIRED_MAX if there may be more. */
int pst_catalogue_expire(struct pst_catalogue *catalogue, uint64_t now_ms);

struct pst_key_info {
    struct pst_bytes key;
    enum pst_lifespan lifespan; /* never UNSAID */
    const char *service, *namespace;
    const char *store_ip; /* "": the store pod does not have it */
    const char *pod_name; /* of the first peer by address, "" without one */
    uint64_t source_count;
};

struct pst_source_info {
    struct pst_source source;
    bool is_store;
    uint64_t published_ms;
    uint32_t request_count;
};

typedef void pst_key_each(void *arg, const struct pst_key_info *key);
typedef void pst_source_each(void *arg, const struct pst_source_info *source);

/* Calls @on_key once, then @on_source for each source that has not expired, the store's first, then by
 * address; either may be NULL. Return: 0, -ENOENT. */
int pst_catalogue_get(struct pst_catalogue *catalogue, struct pst_bytes key, uint64_t now_ms,
                      pst_key_each *on_key, pst_source_each *on_source, void *arg);

/* Where to fetch a key. Texts as above. */
struct pst_choice {
    char ip[PST_IP_BYTES_MAX + 1], pod_name[PST_NAME_BYTES_MAX + 1], namespace[PST_NAME_BYTES_MAX + 1];
    char src_path[PST_SRC_PATH_BYTES_MAX + 1], data_type[PST_DATA_TYPE_BYTES_MAX + 1];
    bool is_store;
    uint32_t request_count; /* with this one */
    uint32_t saturated_count;
    char saturated[PST_SATURATED_MAX][PST_IP_BYTES_MAX + 1];
};

/* Who asks. Pods are near that have the first 24 bits of their addresses in common, of IPv6 64: those of one
 * host mostly do. */
struct pst_asker {
    const char *ip; /* is not chosen; or NULL */
    bool outside;   /* it asks from outside the cluster: pods mostly cannot be reached */
};

/*
 * The peer that serves fewest, and fewer than PST_SOURCE_REQUESTS_MAX; of equals one that is near, and of
 * those by @random, any number. The store if there is no such peer, or somebody outside asks; it has to serve
 * fewer, too. The request counts until it is completed, or for PST_REQUEST_LIFE_MS; twice that if the clock
 * is set back meanwhile. Return: 0 and *@out; -ENOENT there is no source; -EBUSY all are full:
 * @out->saturated has addresses, up to PST_SATURATED_MAX, and the rest of it is empty. On other faults *@out
 * says nothing.
 */
int pst_catalogue_choose(struct pst_catalogue *catalogue, struct pst_bytes key, uint64_t now_ms,
                         const struct pst_asker *asker, uint64_t random, struct pst_choice *out);
/* Ends a request at @ip, the one chosen longest ago. Return: 1, or 0 there was none. */
int pst_catalogue_complete(struct pst_catalogue *catalogue, struct pst_bytes key, const char *ip);

/* Return: true go on, false enough. */
typedef bool pst_key_list(void *arg, const struct pst_key_info *key);

/*
 * Calls @each for keys that begin with @prefix, which may be empty, in memcmp order. @from: empty, or where
 * to begin: at this key, or the first behind it. Sources count that have expired and were not forgotten yet.
 * Return: 0.
 */
int pst_catalogue_list(struct pst_catalogue *catalogue, struct pst_bytes prefix, struct pst_bytes from,
                       pst_key_list *each, void *arg);

enum {
    PST_DELETE_RECURSIVE = 1, /* what lies beneath, too: "a/b" of "a" */
    PST_DELETE_PREFIX = 2,    /* every key that begins so, up to the next slash */
};

/* Return: 0 and how many keys in *@count. */
int pst_catalogue_delete(struct pst_catalogue *catalogue, struct pst_bytes key, int flags, uint64_t *count);
/* Calls @each for keys whose lifespan is that of @service in @namespace. Return: 0. */
int pst_catalogue_of_service(struct pst_catalogue *catalogue, const char *service, const char *namespace,
                             pst_key_list *each, void *arg);
/* Deletes them. Return: as pst_catalogue_delete(). */
int pst_catalogue_service_cleanup(struct pst_catalogue *catalogue, const char *service, const char *namespace,
                                  uint64_t *count);

struct pst_catalogue_stats {
    uint64_t key_count, source_count, store_key_count;
};

int pst_catalogue_stats(struct pst_catalogue *catalogue, struct pst_catalogue_stats *out);

#endif
