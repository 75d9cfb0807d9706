/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.c: makes a store the same as another one, and keeps it so, on a thread of its own. It is told of
 * changes there, and reads what has changed; where it may have missed some it compares both listings. Nothing
 * is ever written to the other store, whose evictions count here like deletions, while this one may evict
 * what it likes.
 */
#include "client/client_priv.h"

#include "base/error.h"
#include "base/options.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define FOLLOW_MAGIC 0x666f6c6cu

enum {
    RETRY_MS = 1000,
    TIMEOUT_MS = 2000, /* of a call, unless the caller says: to end it may take so long */
    WATCH_MS = 200,    /* an end is seen so soon */
    GROWTHS_MAX = 8,   /* of a value while it is read */
};

struct penstock_follow {
    uint32_t magic;
    pthread_t thread;
    int stop_fd; /* readable: it is to end */
    struct penstock *mirror;
    struct penstock_follow_options options; /* what it names is its own */
    char *url, *secret_file;
    void *prefix;
    /* The thread's: */
    struct penstock *source; /* NULL: not reached yet */
    struct penstock_watch *watch;
    uint8_t *buf;
    uint64_t room;
    uint64_t refused; /* values that this store had no room for */
    bool apart;       /* something may have been missed: compare */
    bool told;        /* of a failure that goes on */
};

static bool stopping(const struct penstock_follow *f, int wait_ms)
{
    struct pollfd fd = {.fd = f->stop_fd, .events = POLLIN};

    pst_assert(f->stop_fd >= 0);
    return poll(&fd, 1, wait_ms) > 0;
}

static void say(const struct penstock_follow *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct penstock_follow *f, const char *format, ...)
{
    char line[PST_FAULT_BYTES + 64];
    va_list args;

    if (!f->options.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    f->options.log(f->options.log_ctx, line);
}

static int mirror_delete(struct penstock_follow *f, const void *key, size_t key_bytes)
{
    int r = penstock_delete(f->mirror, key, key_bytes);

    pst_assert(f->magic == FOLLOW_MAGIC);
    return r == PENSTOCK_MISS ? 0 : r;
}

static int grow(struct penstock_follow *f, uint64_t bytes)
{
    uint8_t *larger;

    pst_assert(f->magic == FOLLOW_MAGIC);
    pst_assert(!f->buf == !f->room);
    if (f->buf && bytes <= f->room)
        return 0;
    larger = realloc(f->buf, pst_max(bytes, 4096));
    if (!larger)
        return -ENOMEM;
    f->room = pst_max(bytes, 4096);
    f->buf = larger;
    return 0;
}

/* Reads a value with its attributes, however it grows meanwhile. Return: its result. */
static int source_get(struct penstock_follow *f, struct penstock_op *op,
                      uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX])
{
    int r = -ENOBUFS;

    for (int i = 0; i < GROWTHS_MAX && r == -ENOBUFS; i++) {
        r = grow(f, op->value_bytes);
        if (r < 0)
            break;
        pst_assert(f->room >= op->value_bytes);
        penstock_prep_get(op, op->key, op->key_bytes, f->buf, f->room);
        op->attrs = attrs;
        op->attr_bytes = PENSTOCK_ATTR_BYTES_MAX;
        r = penstock_batch(f->source, op, 1);
        r = r < 0 ? r : op->result;
    }
    return r;
}

/* Copies a value as it is now, or deletes it here when there is none any more. */
static int copy(struct penstock_follow *f, const void *key, size_t key_bytes, uint64_t value_bytes,
                uint16_t depth)
{
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX];
    struct penstock_op op = {.key = key, .key_bytes = (uint16_t)key_bytes, .value_bytes = value_bytes};
    struct penstock_op put = {0};
    int r = source_get(f, &op, attrs);

    if (r == PENSTOCK_MISS)
        return mirror_delete(f, key, key_bytes);
    if (r)
        return r;
    pst_assert(op.value_bytes <= f->room);
    penstock_prep_put(&put, key, key_bytes, f->buf, op.value_bytes);
    put.depth = depth;
    put.attrs = attrs;
    put.attr_bytes = op.attr_bytes;
    r = penstock_batch(f->mirror, &put, 1);
    r = r < 0 ? r : put.result;
    if (r != -ENOSPC && r != -EFBIG)
        return r;
    if (f->refused++ == 0)
        say(f, "follow: %s; it stays out", penstock_error());
    return mirror_delete(f, key, key_bytes); /* rather nothing than an old value */
}

/* An event does not tell the depth, a listing of the one key does. */
static int copy_changed(struct penstock_follow *f, const struct penstock_event *event)
{
    pst_cleanup_free uint8_t *end = calloc(1, event->key_bytes + 1);
    struct penstock_list_options options = {.size = sizeof(options),
                                            .start = event->key,
                                            .start_bytes = event->key_bytes,
                                            .end = end,
                                            .end_bytes = event->key_bytes + 1};
    struct penstock_list *list = NULL;
    struct penstock_entry entry = {0};
    int r = end ? 0 : -ENOMEM;

    if (options.end_bytes > PENSTOCK_KEY_BYTES_MAX)
        options.end_bytes = 0; /* the first one is looked at alone */
    if (r == 0) {
        memcpy(end, event->key, event->key_bytes);
        r = penstock_list_open(f->source, &options, &list);
    }
    if (r == 0)
        r = penstock_list_next(list, &entry);
    if (r == 1 && pst_bytes_equal((struct pst_bytes){entry.key, entry.key_bytes},
                                  (struct pst_bytes){event->key, event->key_bytes}))
        r = copy(f, entry.key, entry.key_bytes, entry.value_bytes, entry.depth);
    else if (r >= 0)
        r = mirror_delete(f, event->key, event->key_bytes);
    penstock_list_close(list);
    return r;
}

static int order(const struct penstock_entry *a, const struct penstock_entry *b)
{
    return pst_bytes_compare((struct pst_bytes){a->key, a->key_bytes},
                             (struct pst_bytes){b->key, b->key_bytes});
}

/* Goes through both listings side by side. */
static int compare(struct penstock_follow *f, struct penstock_list *theirs, struct penstock_list *ours,
                   uint64_t *keys)
{
    struct penstock_entry their, our;
    int more = penstock_list_next(theirs, &their), rest = penstock_list_next(ours, &our), r = 0;

    while (r == 0 && more >= 0 && rest >= 0 && (more || rest)) {
        int side = !rest ? -1 : !more ? 1 : order(&their, &our);

        r = side > 0 ? mirror_delete(f, our.key, our.key_bytes)
                     : copy(f, their.key, their.key_bytes, their.value_bytes, their.depth);
        *keys += side <= 0;
        if (r == 0 && stopping(f, 0))
            return -ECANCELED;
        if (side <= 0)
            more = penstock_list_next(theirs, &their);
        if (side >= 0)
            rest = penstock_list_next(ours, &our);
    }
    if (r == 0)
        r = more < 0 ? more : rest < 0 ? rest : 0;
    return r;
}

static int follow_all(struct penstock_follow *f)
{
    struct penstock_list_options options = {
        .size = sizeof(options), .prefix = f->options.prefix, .prefix_bytes = f->options.prefix_bytes};
    struct penstock_list *theirs = NULL, *ours = NULL;
    uint64_t keys = 0;
    int r = penstock_list_open(f->source, &options, &theirs);

    pst_assert(f->source);
    pst_assert(f->watch);
    pst_assert(!f->apart);
    pst_assert(f->mirror);
    if (r == 0)
        r = penstock_list_open(f->mirror, &options, &ours);
    if (r == 0)
        r = compare(f, theirs, ours, &keys);
    penstock_list_close(theirs);
    penstock_list_close(ours);
    if (r == 0)
        say(f, "follow: %" PRIu64 " keys of %s", keys, f->options.url);
    return r;
}

static int take_event(struct penstock_follow *f, const struct penstock_event *event)
{
    switch (event->what) {
    case PENSTOCK_EVENT_PUT:
        return copy_changed(f, event);
    case PENSTOCK_EVENT_DELETED:
    case PENSTOCK_EVENT_EVICTED:
        return mirror_delete(f, event->key, event->key_bytes);
    default:
        f->apart = true;
        return 0;
    }
}

/* ---- the thread ---- */

static int connect_source(struct penstock_follow *f)
{
    const struct penstock_options opening = {.size = sizeof(opening),
                                             .secret_file = f->options.secret_file,
                                             .timeout_ms = f->options.timeout_ms,
                                             .connect_ms = TIMEOUT_MS};
    int r;

    pst_assert(!f->source);
    pst_assert(!f->watch);
    r = penstock_open(f->options.url, &opening, &f->source);
    if (r == 0)
        r = penstock_watch_open(f->source, f->options.prefix, f->options.prefix_bytes, &f->watch);
    if (r < 0)
        f->source = penstock_close(f->source);
    pst_assert(!f->source == !f->watch);
    f->apart = true;
    return r;
}

/* Return: 0 it goes on. */
static int step(struct penstock_follow *f)
{
    struct penstock_event event;
    int r = f->source ? 0 : connect_source(f);

    pst_assert(r < 0 || f->watch);
    if (r == 0 && !f->apart)
        r = penstock_watch_next(f->watch, WATCH_MS, &event);
    if (r == 1)
        r = take_event(f, &event);
    if (r == 0 && f->apart) {
        f->apart = false;
        r = follow_all(f);
        f->told &= r != 0;
    }
    return r;
}

/* What fails may be there again: it is said once, and everything is compared then. */
static void *follow_main(void *arg)
{
    struct penstock_follow *f = arg;

    pst_assert(f->magic == FOLLOW_MAGIC);
    while (!stopping(f, 0)) {
        if (step(f) == 0)
            continue;
        f->apart = true;
        if (!stopping(f, 0) && !f->told)
            say(f, "follow: %s; tries again", penstock_error());
        f->told = true;
        if (stopping(f, RETRY_MS))
            break;
    }
    penstock_watch_close(f->watch);
    penstock_close(f->source);
    return NULL;
}

/* ---- for the caller ---- */

static struct penstock_follow *follow_free(struct penstock_follow *f)
{
    pst_close_fd(&f->stop_fd);
    free(f->url);
    free(f->secret_file);
    free(f->prefix);
    free(f->buf);
    free(f);
    return NULL;
}

static struct penstock_follow *follow_new(const struct penstock_follow_options *given)
{
    struct penstock_follow *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->magic = FOLLOW_MAGIC;
    f->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    memcpy(&f->options, given, pst_min(given->size, sizeof(f->options)));
    f->url = strdup(f->options.url);
    f->secret_file = f->options.secret_file ? strdup(f->options.secret_file) : NULL;
    f->prefix = malloc(f->options.prefix_bytes + 1);
    if (f->stop_fd < 0 || !f->url || !f->prefix || (f->options.secret_file && !f->secret_file))
        return follow_free(f);
    if (f->options.prefix_bytes)
        memcpy(f->prefix, f->options.prefix, f->options.prefix_bytes);
    if (!f->options.timeout_ms)
        f->options.timeout_ms = TIMEOUT_MS;
    f->options.url = f->url;
    f->options.secret_file = f->secret_file;
    f->options.prefix = f->prefix;
    return f;
}

int penstock_follow_open(struct penstock *mirror, const struct penstock_follow_options *options,
                         struct penstock_follow **out)
{
    struct penstock_follow *f;
    struct pst_url source;
    int r = pst_store_check(mirror);

    if (r < 0)
        return r;
    if (!out || !options || options->size < offsetof(struct penstock_follow_options, log) || !options->url)
        return pst_fail(-EINVAL, "penstock_follow_open: no URL to follow, or nowhere to put the follower");
    if (strcmp(mirror->url, options->url) == 0)
        return pst_fail(-EINVAL, "%s: a store cannot follow itself", mirror->url);
    if (options->prefix_bytes > PENSTOCK_KEY_BYTES_MAX)
        return pst_fail(-ENAMETOOLONG, "penstock_follow_open: a prefix longer than %d bytes",
                        PENSTOCK_KEY_BYTES_MAX);
    r = pst_url_parse(options->url, &source);
    if (r < 0)
        return r;
    if (source.embedded)
        return pst_fail(-EINVAL, "%s: only a node can be followed", options->url);
    f = follow_new(options);
    if (!f)
        return pst_fail(-ENOMEM, "out of memory");
    f->mirror = mirror;
    r = -pthread_create(&f->thread, NULL, follow_main, f);
    if (r < 0) {
        follow_free(f);
        return pst_fail(r, "penstock_follow_open: %s", strerror(-r));
    }
    *out = f;
    return 0;
}

struct penstock_follow *penstock_follow_close(struct penstock_follow *f)
{
    if (!f)
        return NULL;
    pst_assert(f->magic == FOLLOW_MAGIC);
    if (pst_store_check(f->mirror) < 0) /* a forked child has no such thread */
        return NULL;
    pst_event_set(f->stop_fd);
    pthread_join(f->thread, NULL);
    f->magic = 0;
    return follow_free(f);
}
