/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c: what the catalogue knows, and from where a key is fetched. */
#include "files/catalogue/catalogue_priv.h"

#include "base/error.h"

#include <arpa/inet.h>

/* The columns of SQL_SOURCE and of SQL_KEY. */
enum {
    AT_IP,
    AT_POD_NAME,
    AT_NAMESPACE,
    AT_SRC_PATH,
    AT_DATA_TYPE,
    AT_IS_STORE,
    AT_PUBLISHED,
    AT_UNDERWAY,
    AT_ID
};
enum { AT_KEY, AT_LIFESPAN, AT_SERVICE, AT_SERVICE_NAMESPACE, AT_STORE_IP, AT_PEER, AT_SOURCES };

static struct pst_source_info source_of(sqlite3_stmt *row)
{
    return (struct pst_source_info){
        .source = {.ip = pst_column_text(row, AT_IP),
                   .pod_name = pst_column_text(row, AT_POD_NAME),
                   .namespace = pst_column_text(row, AT_NAMESPACE),
                   .src_path = pst_column_text(row, AT_SRC_PATH),
                   .data_type = pst_column_text(row, AT_DATA_TYPE)},
        .is_store = sqlite3_column_int(row, AT_IS_STORE) != 0,
        .published_ms = (uint64_t)sqlite3_column_int64(row, AT_PUBLISHED),
        .request_count = (uint32_t)sqlite3_column_int(row, AT_UNDERWAY),
    };
}

static struct pst_key_info key_of(sqlite3_stmt *row)
{
    const void *key = sqlite3_column_blob(row, AT_KEY);

    return (struct pst_key_info){
        .key = {key, (size_t)sqlite3_column_bytes(row, AT_KEY)},
        .lifespan = sqlite3_column_int(row, AT_LIFESPAN) == PST_LIFESPAN_RESOURCE ? PST_LIFESPAN_RESOURCE
                                                                                  : PST_LIFESPAN_CLUSTER,
        .service = pst_column_text(row, AT_SERVICE),
        .namespace = pst_column_text(row, AT_SERVICE_NAMESPACE),
        .store_ip = pst_column_text(row, AT_STORE_IP),
        .pod_name = pst_column_text(row, AT_PEER),
        .source_count = (uint64_t)sqlite3_column_int64(row, AT_SOURCES),
    };
}

/* A statement whose ?1 is @key and whose ?2 is the time. */
static sqlite3_stmt *about(struct pst_catalogue *c, enum catalogue_statement which, struct pst_bytes key,
                           uint64_t now_ms)
{
    sqlite3_stmt *statement = pst_statement(c, which);

    pst_bind_bytes(statement, 1, key);
    pst_bind_number(statement, 2, now_ms);
    return statement;
}

static int get_key(struct pst_catalogue *c, struct pst_bytes key, uint64_t now_ms, pst_key_each *on_key,
                   void *arg)
{
    sqlite3_stmt *row = about(c, ST_KEY, key, now_ms);
    int r = pst_statement_step(c, row);

    if (r == 1) {
        struct pst_key_info info = key_of(row);

        r = info.source_count > 0 ? 0 : -ENOENT;
        pst_assert(!c->calling);
        c->calling = true;
        if (r == 0 && on_key)
            on_key(arg, &info);
        c->calling = false;
    } else if (r == 0) {
        r = -ENOENT;
    }
    pst_statement_end(row);
    return r;
}

int pst_catalogue_get(struct pst_catalogue *c, struct pst_bytes key, uint64_t now_ms, pst_key_each *on_key,
                      pst_source_each *on_source, void *arg)
{
    sqlite3_stmt *row;
    int r;

    if (!pst_key_fits(key))
        return -EINVAL;
    r = get_key(c, key, now_ms, on_key, arg);
    if (r < 0 || !on_source)
        return r;
    row = about(c, ST_SOURCES, key, now_ms);
    while ((r = pst_statement_step(c, row)) == 1) {
        struct pst_source_info info = source_of(row);

        pst_assert(!c->calling);
        c->calling = true;
        on_source(arg, &info);
        c->calling = false;
    }
    pst_statement_end(row);
    return r;
}

static int each_key(struct pst_catalogue *c, sqlite3_stmt *row, pst_key_list *each, void *arg)
{
    bool more = true;
    int r;

    while ((r = pst_statement_step(c, row)) == 1 && more) {
        struct pst_key_info info = key_of(row);

        if (!pst_key_fits(info.key)) { /* somebody else has written to the file */
            r = pst_fail(-EBADMSG, "catalogue %s is damaged: a key of %zu bytes", c->path, info.key.len);
            break;
        }
        pst_assert(!c->calling);
        c->calling = true;
        more = each(arg, &info);
        c->calling = false;
    }
    pst_statement_end(row);
    return r < 0 ? r : 0;
}

int pst_catalogue_list(struct pst_catalogue *c, struct pst_bytes prefix, struct pst_bytes from,
                       pst_key_list *each, void *arg)
{
    uint8_t end[PST_PREFIX_END_CAP];
    sqlite3_stmt *row;

    if (prefix.len > PST_KEY_BYTES_MAX || from.len > PST_KEY_BYTES_MAX)
        return -EINVAL;
    row = about(c, ST_LIST, pst_bytes_compare(prefix, from) < 0 ? from : prefix, 0);
    pst_bind_bytes(row, 3, (struct pst_bytes){end, pst_catalogue_prefix_end(prefix, end)});
    return each_key(c, row, each, arg);
}

int pst_catalogue_of_service(struct pst_catalogue *c, const char *service, const char *namespace,
                             pst_key_list *each, void *arg)
{
    sqlite3_stmt *row;

    if (!pst_service_fits(service, namespace))
        return -EINVAL;
    row = pst_statement(c, ST_OF_SERVICE);
    pst_bind_text(row, 1, service);
    pst_bind_number(row, 2, 0);
    pst_bind_text(row, 3, namespace);
    return each_key(c, row, each, arg);
}

/* ---- from where ---- */

/* What is kept is bounded when it is written; a text that is longer all the same is cut. */
static void copy(char *to, size_t cap, const char *text)
{
    pst_assert(cap > 0);
    size_t len = strnlen(text, cap - 1);

    memcpy(to, text, len);
    to[len] = '\0';
}

enum { NEAR_BYTES_4 = 3, NEAR_BYTES_6 = 8 };

static bool is_near(const char *ip, const char *asker)
{
    uint8_t one[sizeof(struct in6_addr)], other[sizeof(one)];

    if (!asker)
        return false;
    if (inet_pton(AF_INET, ip, one) == 1 && inet_pton(AF_INET, asker, other) == 1)
        return memcmp(one, other, NEAR_BYTES_4) == 0;
    return inet_pton(AF_INET6, ip, one) == 1 && inet_pton(AF_INET6, asker, other) == 1 &&
           memcmp(one, other, NEAR_BYTES_6) == 0;
}

/* How well a source serves; the least is the best. */
struct rank {
    bool last; /* the store, or for who asks from outside a pod */
    bool far;
    uint32_t requests;
};

static struct rank rank_of(const struct pst_asker *asker, const struct pst_source_info *info)
{
    return (struct rank){info->is_store != asker->outside, !is_near(info->source.ip, asker->ip),
                         info->request_count};
}

static int rank_order(struct rank a, struct rank b)
{
    if (a.last != b.last)
        return a.last ? 1 : -1;
    if (a.requests != b.requests)
        return a.requests < b.requests ? -1 : 1;
    return a.far - b.far;
}

/* Of the rows of ST_CHOOSE. */
struct candidates {
    const struct pst_asker *asker;
    uint64_t equals; /* rows that may be chosen as well as each other */
    struct rank best;
};

static void weigh(struct candidates *found, const struct pst_source_info *info)
{
    struct rank rank = rank_of(found->asker, info);
    int order = found->equals == 0 ? -1 : rank_order(rank, found->best);

    if (info->request_count >= PST_SOURCE_REQUESTS_MAX || order > 0)
        return;
    found->equals = order < 0 ? 1 : found->equals + 1;
    found->best = rank;
    pst_assert(found->equals > 0);
}

/* Return: 0, -EBUSY none of them may be chosen, -ENOENT there is none, or -errno. */
static int weigh_all(struct pst_catalogue *c, sqlite3_stmt *row, struct candidates *found,
                     struct pst_choice *out)
{
    bool any = false;
    int r;

    while ((r = pst_statement_step(c, row)) == 1) {
        struct pst_source_info info = source_of(row);

        any = true;
        weigh(found, &info);
        if (found->equals == 0 && out->saturated_count < PST_SATURATED_MAX)
            copy(out->saturated[out->saturated_count++], sizeof(out->saturated[0]), info.source.ip);
    }
    if (r < 0)
        return r;
    if (found->equals == 0)
        return any ? -EBUSY : -ENOENT;
    pst_assert(any);
    pst_assert(out->saturated_count <= PST_SATURATED_MAX);
    out->saturated_count = 0;
    memset(out->saturated, 0, sizeof(out->saturated));
    return 0;
}

/* Into @out the one of the equal rows that has number @at among them. Return: its key's id, or -errno. */
static int64_t take_row(struct pst_catalogue *c, sqlite3_stmt *row, const struct candidates *found,
                        uint64_t at, struct pst_choice *out)
{
    struct pst_source_info info;
    int r;

    pst_assert(at < found->equals);
    sqlite3_reset(row);
    while ((r = pst_statement_step(c, row)) == 1) {
        info = source_of(row);
        if (rank_order(rank_of(found->asker, &info), found->best) == 0 && at-- == 0)
            break;
    }
    if (r < 0)
        return r;
    pst_assert(r == 1); /* nobody else writes */
    copy(out->ip, sizeof(out->ip), info.source.ip);
    copy(out->pod_name, sizeof(out->pod_name), info.source.pod_name);
    copy(out->namespace, sizeof(out->namespace), info.source.namespace);
    copy(out->src_path, sizeof(out->src_path), info.source.src_path);
    copy(out->data_type, sizeof(out->data_type), info.source.data_type);
    out->is_store = info.is_store;
    out->request_count = info.request_count + 1;
    return sqlite3_column_int64(row, AT_ID);
}

static int add_request(struct pst_catalogue *c, int64_t id, const char *ip, uint64_t now_ms)
{
    sqlite3_stmt *statement = pst_statement(c, ST_ADD_REQUEST);

    pst_bind_number(statement, 1, (uint64_t)id);
    pst_bind_text(statement, 2, ip);
    pst_bind_number(statement, 3, now_ms + PST_REQUEST_LIFE_MS);
    return pst_statement_run(c, statement);
}

int pst_catalogue_forget_requests(struct pst_catalogue *c, uint64_t now_ms)
{
    sqlite3_stmt *statement = pst_statement(c, ST_EXPIRE_REQUESTS);

    pst_bind_number(statement, 1, now_ms);
    pst_bind_number(statement, 2, now_ms + 2 * PST_REQUEST_LIFE_MS); /* of a clock that was set back since */
    return pst_statement_run(c, statement);
}

int pst_catalogue_choose(struct pst_catalogue *c, struct pst_bytes key, uint64_t now_ms,
                         const struct pst_asker *asker, uint64_t random, struct pst_choice *out)
{
    struct candidates found = {.asker = asker};
    sqlite3_stmt *row;
    int64_t id = 0;
    int r;

    if (!pst_key_fits(key) || !pst_text_fits(asker->ip, PST_IP_BYTES_MAX))
        return -EINVAL;
    memset(out, 0, sizeof(*out));
    r = pst_catalogue_forget_requests(c, now_ms);
    if (r < 0)
        return r;
    row = about(c, ST_CHOOSE, key, now_ms);
    pst_bind_text(row, 3, asker->ip);
    pst_assert(out->saturated_count == 0);
    r = weigh_all(c, row, &found, out);
    if (r == 0)
        id = take_row(c, row, &found, random % found.equals, out);
    pst_statement_end(row);
    if (r < 0 || id < 0)
        return r < 0 ? r : (int)id;
    return add_request(c, id, out->ip, now_ms);
}

int pst_catalogue_stats(struct pst_catalogue *c, struct pst_catalogue_stats *out)
{
    sqlite3_stmt *row = pst_statement(c, ST_STATS);
    int r = pst_statement_step(c, row);

    pst_assert(r != 0);
    if (r == 1) {
        *out = (struct pst_catalogue_stats){
            .key_count = (uint64_t)sqlite3_column_int64(row, 0),
            .source_count = (uint64_t)sqlite3_column_int64(row, 1),
            .store_key_count = (uint64_t)sqlite3_column_int64(row, 2),
        };
    }
    pst_statement_end(row);
    return r < 0 ? r : 0;
}
