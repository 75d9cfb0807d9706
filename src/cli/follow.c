/*
 * follow.c: makes the store the same as another one, and keeps it so. It is told of changes there, and reads
 * what has changed; where it may have missed some it compares both listings. Nothing is ever written to the
 * other store, whose evictions count here like deletions, while this one may evict what it likes.
 */
#include "cli/cli.h"

#include <inttypes.h>
#include <unistd.h>

enum {
    RETRY_MS = 1000,
    GROWTHS_MAX = 8, /* of a value while it is read */
};

struct follower {
    struct pst_cli *cli;
    struct penstock *source;
    struct penstock_watch *watch;
    const char *prefix;
    uint8_t *buf;
    uint64_t room;
    uint64_t refused; /* values that this store had no room for */
    bool apart;       /* something may have been missed: compare */
    bool told;        /* of a failure that goes on */
};

static int mirror_delete(struct follower *f, const void *key, size_t key_bytes)
{
    int r = penstock_delete(f->cli->store, key, key_bytes);

    return r == PENSTOCK_MISS ? 0 : r;
}

static int grow(struct follower *f, uint64_t bytes)
{
    uint8_t *larger;

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
static int source_get(struct follower *f, struct penstock_op *op, uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX])
{
    int r = -ENOBUFS;

    for (int i = 0; i < GROWTHS_MAX && r == -ENOBUFS; i++) {
        r = grow(f, op->value_bytes);
        if (r < 0)
            break;
        penstock_prep_get(op, op->key, op->key_bytes, f->buf, f->room);
        op->attrs = attrs;
        op->attr_bytes = PENSTOCK_ATTR_BYTES_MAX;
        r = penstock_batch(f->source, op, 1);
        r = r < 0 ? r : op->result;
    }
    return r;
}

/* Copies a value as it is now, or deletes it here when there is none any more. */
static int copy(struct follower *f, const void *key, size_t key_bytes, uint64_t value_bytes, uint16_t depth)
{
    uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX];
    struct penstock_op op = {.key = key, .key_bytes = (uint16_t)key_bytes, .value_bytes = value_bytes};
    struct penstock_op put = {0};
    int r = source_get(f, &op, attrs);

    if (r == PENSTOCK_MISS)
        return mirror_delete(f, key, key_bytes);
    if (r)
        return r;
    penstock_prep_put(&put, key, key_bytes, f->buf, op.value_bytes);
    put.depth = depth;
    put.attrs = attrs;
    put.attr_bytes = op.attr_bytes;
    r = penstock_batch(f->cli->store, &put, 1);
    r = r < 0 ? r : put.result;
    if (r != -ENOSPC && r != -EFBIG)
        return r;
    if (f->refused++ == 0)
        fprintf(stderr, "penstock: %s; it stays out\n", penstock_error());
    return mirror_delete(f, key, key_bytes); /* rather nothing than an old value */
}

/* An event does not tell the depth, a listing of the one key does. */
static int copy_changed(struct follower *f, const struct penstock_event *event)
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
static int compare(struct follower *f, struct penstock_list *theirs, struct penstock_list *ours,
                   uint64_t *keys)
{
    struct penstock_entry their, our;
    int more = penstock_list_next(theirs, &their), rest = penstock_list_next(ours, &our), r = 0;

    while (r == 0 && more >= 0 && rest >= 0 && (more || rest)) {
        int side = !rest ? -1 : !more ? 1 : order(&their, &our);

        r = side > 0 ? mirror_delete(f, our.key, our.key_bytes)
                     : copy(f, their.key, their.key_bytes, their.value_bytes, their.depth);
        *keys += side <= 0;
        if (side <= 0)
            more = penstock_list_next(theirs, &their);
        if (side >= 0)
            rest = penstock_list_next(ours, &our);
    }
    if (r == 0)
        r = more < 0 ? more : rest < 0 ? rest : 0;
    return r;
}

static int follow_all(struct follower *f)
{
    struct penstock_list_options options = {
        .size = sizeof(options), .prefix = f->prefix, .prefix_bytes = strlen(f->prefix)};
    struct penstock_list *theirs = NULL, *ours = NULL;
    uint64_t keys = 0;
    int r = penstock_list_open(f->source, &options, &theirs);

    if (r == 0)
        r = penstock_list_open(f->cli->store, &options, &ours);
    if (r == 0)
        r = compare(f, theirs, ours, &keys);
    penstock_list_close(theirs);
    penstock_list_close(ours);
    if (r == 0)
        fprintf(stderr, "following %" PRIu64 " keys\n", keys);
    return r;
}

static int take_event(struct follower *f, const struct penstock_event *event)
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

/* What fails may be there again: it is said once, and everything is compared then. */
static void wait_out(struct follower *f, int result)
{
    if (!f->told)
        pst_cli_fail(result);
    f->told = true;
    f->apart = true;
    usleep(RETRY_MS * 1000);
}

static void follow(struct follower *f)
{
    for (;;) {
        struct penstock_event event;
        int r = f->apart ? 0 : penstock_watch_next(f->watch, -1, &event);

        if (r == 1)
            r = take_event(f, &event);
        if (r == 0 && f->apart) {
            f->apart = false;
            r = follow_all(f);
            f->told &= r != 0;
        }
        if (r)
            wait_out(f, r);
    }
}

int pst_cmd_follow(struct pst_cli *cli)
{
    struct penstock_options opening = {
        .size = sizeof(opening), .secret_file = cli->secret_file, .timeout_ms = (uint32_t)cli->timeout};
    struct follower f = {.cli = cli, .prefix = cli->arg_count == 2 ? cli->args[1] : "", .apart = true};
    int r;

    if (cli->url && strcmp(cli->url, cli->args[0]) == 0)
        return pst_cli_usage("follow: a store cannot follow itself");
    r = penstock_open(cli->args[0], &opening, &f.source);
    if (r == 0)
        r = penstock_watch_open(f.source, f.prefix, strlen(f.prefix), &f.watch);
    if (r == 0)
        follow(&f);
    r = pst_cli_fail(r);
    penstock_close(f.source);
    return r;
}
