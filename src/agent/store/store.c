/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: the data store's parts in the order in which they open and end. */
#include "agent/store/store_priv.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/own.h"
#include "files/group/quorum.h"
#include "net/handshake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

enum {
    SWEEP_MS = 300 * 1000,
    TREE_CONNECTIONS_MAX = 1024, /* each member of a broadcast has one for a moment, now and then */
};

static int fail(int error, char fault[PST_FAULT_BYTES], const char *what, const char *why)
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%.100s: %.140s", what, why);
    return error;
}

static void tell(const struct pst_data_store *store, const char *what, const char *host, unsigned port)
{
    char line[320];

    snprintf(line, sizeof(line), "store: %s on %.250s:%u", what, host, port);
    store->log(store->log_ctx, line);
}

/* ---- the folder ---- */

static int open_folder(const char *path, char fault[PST_FAULT_BYTES])
{
    pst_cleanup_close int fd = -1;

    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return fail(-errno, fault, path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(-errno, fault, path, strerror(errno));
    if (pst_own_check(fd, S_IFDIR, PST_OWN_WRITES) < 0)
        return fail(-EPERM, fault, path, pst_error_text());
    return 0;
}

static int open_files(struct pst_data_store *store, char fault[PST_FAULT_BYTES])
{
    const char *data = store->settings->data;
    char path[PATH_MAX];
    int r;

    if (!data)
        return fail(-EINVAL, fault, "data", "a data store needs a folder");
    if (strlen(data) > PATH_MAX - 64)
        return fail(-ENAMETOOLONG, fault, "data", "the folder's name is too long");
    pst_assert(!store->files);
    pst_assert(!store->catalogue);
    r = open_folder(data, fault);
    snprintf(path, sizeof(path), "%s/catalogue.sqlite", data);
    if (r == 0 && (r = pst_catalogue_open(path, store->settings->catalogue_bytes, &store->catalogue)) < 0)
        fail(r, fault, "data", pst_error_text());
    snprintf(path, sizeof(path), "%s/files", data);
    if (r == 0)
        r = open_folder(path, fault);
    if (r == 0 && (r = pst_root_open(path, &store->files)) < 0)
        fail(r, fault, path, pst_error_text());
    return r;
}

/* ---- rsync ---- */

static int read_token(const struct pst_data_store *store, char token[PST_RSYNCD_TOKEN_BYTES_MAX],
                      struct pst_bytes *out, char fault[PST_FAULT_BYTES])
{
    int bytes = store->settings->token_file
                    ? pst_secret_read(store->settings->token_file, token, PST_RSYNCD_TOKEN_BYTES_MAX, fault)
                    : 0;

    *out = (struct pst_bytes){token, bytes > 0 ? (size_t)bytes : 0};
    return bytes < 0 ? bytes : 0;
}

/* rsync's daemon takes an IPv4 address. */
static int find_host(const char *host, char numeric[INET_ADDRSTRLEN], char fault[PST_FAULT_BYTES])
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;

    if (getaddrinfo(host, NULL, &hints, &list) != 0 || !list)
        return fail(-EINVAL, fault, "http", "the host has no IPv4 address, on which rsync would listen");
    pst_assert(list->ai_family == AF_INET);
    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)list->ai_addr)->sin_addr, numeric,
              INET_ADDRSTRLEN);
    freeaddrinfo(list);
    return 0;
}

static int open_rsyncd(struct pst_data_store *store, const struct pst_boot_address *address,
                       struct pst_bytes token, char fault[PST_FAULT_BYTES])
{
    char folder[PATH_MAX], files[PATH_MAX], path[PATH_MAX];
    bool everywhere = pst_boot_address_wildcard(address);
    const struct pst_rsyncd_settings settings = {.folder = folder,
                                                 .host = everywhere ? NULL : store->host,
                                                 .port = (uint16_t)store->settings->rsync_port,
                                                 .token = token,
                                                 .log = store->log,
                                                 .ctx = store->log_ctx};
    int r = find_host(everywhere ? "127.0.0.1" : address->host, store->host, fault);

    pst_assert(!store->rsyncd);
    if (r < 0)
        return r;
    snprintf(folder, sizeof(folder), "%s/rsyncd", store->settings->data);
    snprintf(files, sizeof(files), "%s/files", store->settings->data);
    r = pst_rsyncd_open(&settings, &store->rsyncd, fault);
    if (r < 0)
        return r;
    if (!realpath(files, path))
        return fail(-errno, fault, files, strerror(errno));
    r = pst_rsyncd_add(store->rsyncd, "data", path, PST_RSYNCD_WRITABLE);
    if (r < 0)
        return fail(r, fault, files, strerror(-r));
    tell(store, "rsync", address->host, pst_rsyncd_port(store->rsyncd));
    return 0;
}

/* ---- trees ---- */

/* @name is NAMESPACE/KEY, as the path below rsync's module. Any thread. */
static int resolve_tree(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                        char fault[PST_FAULT_BYTES])
{
    const struct pst_data_store *store = ctx;
    char key[PST_KEY_CAP], folder[PST_KEY_CAP];
    const char *last;
    int r = store_full_key_of(name, key);

    if (r == 0 && (writes ? !pst_key_may_come(key) : pst_key_is_reserved(key)))
        r = -EINVAL;
    if (r < 0)
        return fail(r, fault, name, "is no NAMESPACE/KEY");
    last = pst_key_leaf(key);
    pst_assert(last > key);
    pst_assert(strlen(last) < 256); /* a normal key's parts are no longer */
    snprintf(folder, sizeof(folder), "%.*s", (int)(last - key) - 1, key);
    r = writes ? pst_root_mkdir(store->files, folder) : 0;
    if (r == 0)
        r = pst_root_open_folder(store->files, folder);
    if (r < 0)
        return fail(r, fault, key, r == -ENOENT ? "the store does not have it" : strerror(-r));
    *folder_fd = r;
    snprintf(leaf, 256, "%s", last);
    return 0;
}

static int serve_broadcast(void *ctx, struct link *link, uint32_t operation, const char *name)
{
    return pst_broadcasts_serve(((struct pst_data_store *)ctx)->rows, link, operation, name);
}

static int open_trees(struct pst_data_store *store, const struct pst_boot_address *address,
                      struct pst_bytes token, char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_server_settings settings = {
        .host = pst_boot_address_wildcard(address) ? NULL : store->host,
        .port = (uint16_t)store->settings->tree_port,
        .token = token,
        .connections_max = TREE_CONNECTIONS_MAX,
        .resolve = resolve_tree,
        .munged = pst_rsyncd_munges(),
        .serve = serve_broadcast,
        .ctx = store};
    const struct pst_broadcasts_settings rows = {
        .resolve = resolve_tree, .munged = settings.munged, .ctx = store};
    int r;

    pst_assert(store->files);
    pst_assert(!store->rows);
    pst_assert(!store->trees);
    store->rows = pst_broadcasts_open(&rows);
    r = store->rows ? pst_carry_server_open(&settings, &store->trees, fault)
                    : fail(-ENOMEM, fault, "store", "out of memory");
    if (r < 0)
        return r;
    tell(store, "trees", address->host, pst_carry_server_port(store->trees));
    return 0;
}

/* ---- HTTP ---- */

static const char *http_of(const struct pst_data_store_settings *settings)
{
    return settings->http ? settings->http : PST_DATA_STORE_HTTP;
}

static int open_web(struct pst_data_store *store, const struct pst_boot_address *address,
                    struct pst_bytes token, char fault[PST_FAULT_BYTES])
{
    char rsync[64], trees[64];
    const struct pst_web_settings settings = {.listen = http_of(store->settings),
                                              .token = token,
                                              .name = store->settings->store_address,
                                              .open_paths = {"/health"},
                                              .certificate = store->settings->tls_certificate,
                                              .private_key = store->settings->tls_key,
                                              .tunnels = {{"/rsync/", rsync}, {"/tree/", trees}}};
    const char *why = "";
    int r;

    pst_assert(store->rsyncd);
    pst_assert(store->trees);
    pst_assert(store->broadcasts);
    pst_assert(store->exchanges);
    pst_assert(!store->web);
    snprintf(rsync, sizeof(rsync), "%s:%u", store->host, pst_rsyncd_port(store->rsyncd));
    snprintf(trees, sizeof(trees), "%s:%u", store->host, pst_carry_server_port(store->trees));
    r = pst_web_open(&settings, &store_web_ops, store, &store->web, &why);
    if (r < 0)
        return fail(r, fault, "http", why);
    tell(store, "HTTP", address->host, pst_web_port(store->web));
    return 0;
}

static int read_address(const struct pst_data_store_settings *settings, struct pst_boot_address *address,
                        char fault[PST_FAULT_BYTES])
{
    const char *why = "";
    int r = pst_boot_address_parse(http_of(settings), address, &why);

    if (r == 0 && address->path[0])
        r = -EINVAL, why = "server address must be host:port";
    if (r < 0)
        return fail(r, fault, "http", why);
    if (!settings->token_file && !settings->http_network && !pst_boot_address_loopback(address))
        return fail(-EINVAL, fault, "http", "off loopback it needs token_file, or http_network=yes");
    return 0;
}

/* Where pods find this store's rsync. */
static int set_address(struct pst_data_store *store, char fault[PST_FAULT_BYTES])
{
    const char *said = store->settings->store_address ? store->settings->store_address : getenv("POD_IP");

    if (said && strlen(said) >= sizeof(store->address))
        return fail(-EINVAL, fault, "store_address", "too long");
    store->address_is_said = said;
    if (said)
        snprintf(store->address, sizeof(store->address), "%s", said);
    else if (gethostname(store->address, sizeof(store->address) - 1) < 0)
        return fail(-errno, fault, "store_address", "the host has no name that can be told");
    return 0;
}

/* ---- the sweeper ---- */

static void *sweep(void *arg)
{
    struct pst_data_store *store = arg;
    struct pollfd stop = {.fd = store->stop_fd, .events = POLLIN};

    while (poll(&stop, 1, SWEEP_MS) == 0) {
        int expired = PST_EXPIRED_MAX;

        while (expired == PST_EXPIRED_MAX) {
            pthread_mutex_lock(&store->lock);
            expired = pst_catalogue_expire(store->catalogue, now_ms());
            pthread_mutex_unlock(&store->lock);
        }
        broadcasts_sweep(store->broadcasts);
        pst_broadcasts_forget(store->rows, pst_now_ms());
        pthread_mutex_lock(&store->quorums_lock);
        pst_quorums_forget(store->quorums, pst_now_ms());
        pthread_mutex_unlock(&store->quorums_lock);
        pst_assert(expired < PST_EXPIRED_MAX);
        if (expired < 0)
            store->log(store->log_ctx, "store: sources that have expired could not be forgotten");
    }
    return NULL;
}

/* ---- beginning and end ---- */

static int open_all(struct pst_data_store *store, char fault[PST_FAULT_BYTES])
{
    char secret[PST_RSYNCD_TOKEN_BYTES_MAX];
    struct pst_boot_address address;
    struct pst_bytes token;
    int r = read_address(store->settings, &address, fault);

    pst_assert(store->stop_fd >= 0);
    pst_assert(!store->sweeps);
    if (r == 0)
        r = set_address(store, fault);
    if (r == 0)
        r = read_token(store, secret, &token, fault);
    if (r == 0)
        r = open_files(store, fault);
    if (r == 0)
        r = open_rsyncd(store, &address, token, fault);
    if (r == 0)
        r = open_trees(store, &address, token, fault);
    if (r == 0 && ((r = broadcasts_open(store)) < 0 || (r = exchanges_open(store)) < 0))
        fail(r, fault, "store", strerror(-r));
    if (r == 0)
        r = open_web(store, &address, token, fault);
    explicit_bzero(secret, sizeof(secret));
    if (r < 0)
        return r;
    r = -pthread_create(&store->sweeper, NULL, sweep, store);
    store->sweeps = r == 0;
    return r < 0 ? fail(r, fault, "store", strerror(-r)) : 0;
}

int pst_data_store_open(const struct pst_data_store_settings *settings,
                        void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_data_store **out,
                        char fault[PST_FAULT_BYTES])
{
    struct pst_data_store *store = calloc(1, sizeof(*store));
    int r;

    pst_assert(settings && log && out);
    if (!store)
        return fail(-ENOMEM, fault, "store", "out of memory");
    store->settings = settings;
    store->log = log;
    store->log_ctx = log_ctx;
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->quorums_lock, NULL);
    store->quorums = pst_quorums_open();
    store->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = !store->quorums      ? fail(-ENOMEM, fault, "store", "out of memory")
        : store->stop_fd < 0 ? fail(-errno, fault, "store", strerror(errno))
                             : open_all(store, fault);
    if (r < 0) {
        pst_data_store_close(store);
        return r;
    }
    log(log_ctx, "store: ready");
    *out = store;
    return 0;
}

struct pst_data_store *pst_data_store_close(struct pst_data_store *store)
{
    if (!store)
        return NULL;
    if (store->sweeps) {
        pst_event_set(store->stop_fd);
        pst_assert(pthread_join(store->sweeper, NULL) == 0);
    }
    pst_web_close(store->web);
    broadcasts_close(store->broadcasts);
    exchanges_close(store->exchanges);
    pst_quorums_close(store->quorums);
    pst_broadcasts_stop(store->rows);
    pst_carry_server_close(store->trees);
    pst_broadcasts_close(store->rows);
    pst_rsyncd_close(store->rsyncd);
    pst_root_close(store->files);
    pst_catalogue_close(store->catalogue);
    pst_close_fd(&store->stop_fd);
    pthread_mutex_destroy(&store->quorums_lock);
    pthread_mutex_destroy(&store->lock);
    free(store);
    return NULL;
}
