/* SPDX-License-Identifier: Apache-2.0 */
/* publish.c: what changes the catalogue's file. A change of several statements is a transaction. */
#include "files/catalogue/catalogue_priv.h"

static bool source_fits(const struct pst_source *source)
{
    return pst_ip_fits(source->ip) && pst_text_fits(source->pod_name, PST_NAME_BYTES_MAX) &&
           pst_text_fits(source->namespace, PST_NAME_BYTES_MAX) &&
           pst_text_fits(source->src_path, PST_SRC_PATH_BYTES_MAX) &&
           pst_text_fits(source->data_type, PST_DATA_TYPE_BYTES_MAX);
}

/* Return: 0 and the key's row in *@id. */
static int put_key(struct pst_catalogue *c, struct pst_bytes key, enum pst_lifespan lifespan,
                   const char *service, const char *namespace, uint64_t *id)
{
    sqlite3_stmt *statement = pst_statement(c, ST_PUT_KEY);
    int r;

    pst_bind_bytes(statement, 1, key);
    pst_bind_number(statement, 2, lifespan);
    pst_bind_text(statement, 3, service);
    pst_bind_text(statement, 4, service && *service ? namespace : "");
    r = pst_statement_step(c, statement);
    if (r == 1)
        *id = (uint64_t)sqlite3_column_int64(statement, 0);
    pst_statement_end(statement);
    pst_assert(r != 0); /* it returns the row, or why it has none */
    return r < 0 ? r : 0;
}

static int put_source(struct pst_catalogue *c, uint64_t id, const struct pst_source *source, bool is_store,
                      uint64_t now_ms)
{
    sqlite3_stmt *statement = pst_statement(c, ST_PUT_SOURCE);

    pst_assert(!sqlite3_get_autocommit(c->db)); /* together with its key */
    pst_bind_number(statement, 1, id);
    pst_bind_text(statement, 2, source->ip);
    pst_bind_text(statement, 3, source->pod_name);
    pst_bind_text(statement, 4, source->namespace);
    pst_bind_text(statement, 5, source->src_path);
    pst_bind_text(statement, 6, source->data_type);
    pst_bind_number(statement, 7, is_store);
    pst_bind_number(statement, 8, now_ms);
    return pst_statement_run(c, statement);
}

static int drop_other_store(struct pst_catalogue *c, uint64_t id, const char *ip)
{
    sqlite3_stmt *statement = pst_statement(c, ST_DROP_STORE);

    pst_assert(!sqlite3_get_autocommit(c->db));
    pst_bind_number(statement, 1, id);
    pst_bind_text(statement, 2, ip);
    return pst_statement_run(c, statement);
}

/* Runs a statement that deletes. Return: how many rows, those apart that went with them; or -errno. */
static int64_t run_delete(struct pst_catalogue *c, sqlite3_stmt *statement)
{
    int r = pst_statement_run(c, statement);

    return r < 0 ? r : sqlite3_changes64(c->db);
}

/* The same for one whose ?1 is @key and whose ?2 is @ip. */
static int delete_of_source(struct pst_catalogue *c, enum catalogue_statement which, struct pst_bytes key,
                            const char *ip)
{
    sqlite3_stmt *statement = pst_statement(c, which);

    if (!pst_key_fits(key) || !pst_ip_fits(ip))
        return -EINVAL;
    pst_bind_bytes(statement, 1, key);
    pst_bind_text(statement, 2, ip);
    return (int)run_delete(c, statement);
}

/* Forgets withdrawn sources that were published until then. */
static int forget_withdrawn(struct pst_catalogue *c, uint64_t until_ms)
{
    sqlite3_stmt *statement = pst_statement(c, ST_EXPIRE_WITHDRAWN);

    pst_bind_number(statement, 1, until_ms);
    return pst_statement_run(c, statement);
}

static int put_try(struct pst_catalogue *c, struct pst_bytes key, const struct pst_source *source,
                   enum pst_lifespan lifespan, const char *service, uint64_t now_ms, bool is_store)
{
    uint64_t id = 0;
    int r, forgiven;

    r = pst_transaction_begin(c);
    if (r < 0)
        return r;
    pst_assert(!sqlite3_get_autocommit(c->db));
    r = put_key(c, key, lifespan, service, source->namespace, &id);
    if (r == 0 && !is_store && (forgiven = delete_of_source(c, ST_FORGIVE, key, source->ip)) < 0)
        r = forgiven;
    if (r == 0)
        r = put_source(c, id, source, is_store, now_ms);
    /* The one before goes last: without a source the key would go, too. */
    if (r == 0 && is_store)
        r = drop_other_store(c, id, source->ip);
    return pst_transaction_end(c, r);
}

/* In a full file what is there comes before the memory of what was withdrawn. */
static int put(struct pst_catalogue *c, struct pst_bytes key, const struct pst_source *source,
               enum pst_lifespan lifespan, const char *service, uint64_t now_ms, bool is_store)
{
    int r;

    pst_assert(lifespan < PST_LIFESPAN_COUNT);
    if (!pst_key_fits(key) || !source_fits(source) || !pst_text_fits(service, PST_NAME_BYTES_MAX))
        return -EINVAL;
    r = put_try(c, key, source, lifespan, service, now_ms, is_store);
    if (r == -ENOSPC && forget_withdrawn(c, INT64_MAX) == 0)
        r = put_try(c, key, source, lifespan, service, now_ms, is_store);
    return r;
}

int pst_catalogue_publish(struct pst_catalogue *c, struct pst_bytes key, const struct pst_source *source,
                          enum pst_lifespan lifespan, const char *service, uint64_t now_ms)
{
    return put(c, key, source, lifespan, service, now_ms, false);
}

int pst_catalogue_store(struct pst_catalogue *c, struct pst_bytes key, const struct pst_source *source,
                        enum pst_lifespan lifespan, const char *service, uint64_t now_ms)
{
    return put(c, key, source, lifespan, service, now_ms, true);
}

int pst_catalogue_renew(struct pst_catalogue *c, struct pst_bytes key, const struct pst_source *source,
                        enum pst_lifespan lifespan, const char *service, uint64_t now_ms)
{
    sqlite3_stmt *statement = pst_statement(c, ST_WITHDRAWN);
    int r;

    if (!pst_key_fits(key) || !source_fits(source))
        return -EINVAL;
    pst_bind_bytes(statement, 1, key);
    pst_bind_text(statement, 2, source->ip);
    r = pst_statement_step(c, statement);
    pst_statement_end(statement);
    if (r == 0)
        r = pst_catalogue_publish(c, key, source, lifespan, service, now_ms);
    else if (r == 1)
        return 0;
    return r < 0 ? r : 1;
}

int pst_catalogue_remove_source(struct pst_catalogue *c, struct pst_bytes key, const char *ip)
{
    return delete_of_source(c, ST_DROP_SOURCE, key, ip);
}

int pst_catalogue_complete(struct pst_catalogue *c, struct pst_bytes key, const char *ip)
{
    return delete_of_source(c, ST_COMPLETE, key, ip);
}

int pst_catalogue_expire(struct pst_catalogue *c, uint64_t now_ms)
{
    int r = pst_catalogue_forget_requests(c, now_ms);
    sqlite3_stmt *statement;

    if (r == 0)
        r = forget_withdrawn(c, now_ms - pst_min(now_ms, PST_WITHDRAWN_LIFE_MS));
    if (r < 0 || now_ms < PST_SOURCE_LIFE_MS)
        return r;
    statement = pst_statement(c, ST_EXPIRE);
    pst_bind_number(statement, 1, now_ms - PST_SOURCE_LIFE_MS);
    pst_bind_number(statement, 2, PST_EXPIRED_MAX);
    return (int)run_delete(c, statement);
}

/* ---- keys go ---- */

static int64_t delete_one(struct pst_catalogue *c, struct pst_bytes key)
{
    sqlite3_stmt *statement = pst_statement(c, ST_DELETE_ONE);

    pst_assert(key.len > 0);
    pst_bind_bytes(statement, 1, key);
    return run_delete(c, statement);
}

/* What begins with @prefix; @level: with no slash behind it. */
static int64_t delete_range(struct pst_catalogue *c, struct pst_bytes prefix, bool level)
{
    sqlite3_stmt *statement = pst_statement(c, level ? ST_DELETE_LEVEL : ST_DELETE_RANGE);
    uint8_t end[PST_PREFIX_END_CAP];

    pst_assert(prefix.len > 0 && prefix.len <= PST_KEY_BYTES_MAX);
    pst_bind_bytes(statement, 1, prefix);
    pst_bind_bytes(statement, 2, (struct pst_bytes){end, pst_catalogue_prefix_end(prefix, end)});
    if (level)
        pst_bind_number(statement, 3, prefix.len + 1); /* SQL counts from one */
    return run_delete(c, statement);
}

static int64_t delete_beneath(struct pst_catalogue *c, struct pst_bytes key)
{
    char folder[PST_KEY_BYTES_MAX];

    pst_assert(key.len > 0 && key.len <= PST_KEY_BYTES_MAX);
    if (key.len == PST_KEY_BYTES_MAX)
        return 0; /* no key is longer */
    memcpy(folder, key.data, key.len);
    folder[key.len] = '/';
    return delete_range(c, (struct pst_bytes){folder, key.len + 1}, false);
}

struct deletion {
    struct pst_bytes key;
    int flags;
    const char *service, *namespace; /* whose keys go, in place of @key */
};

static int64_t delete_keys(struct pst_catalogue *c, const struct deletion *what)
{
    int64_t here, beneath = 0;

    pst_assert(!what->service);
    if (what->flags & PST_DELETE_PREFIX)
        return delete_range(c, what->key, !(what->flags & PST_DELETE_RECURSIVE));
    here = delete_one(c, what->key);
    if (here >= 0 && what->flags & PST_DELETE_RECURSIVE)
        beneath = delete_beneath(c, what->key);
    return beneath < 0 ? beneath : here + beneath;
}

static int64_t delete_of_service(struct pst_catalogue *c, const struct deletion *what)
{
    sqlite3_stmt *statement = pst_statement(c, ST_CLEAN_UP);

    pst_bind_text(statement, 1, what->service);
    pst_bind_text(statement, 2, what->namespace);
    return run_delete(c, statement);
}

static int delete_try(struct pst_catalogue *c, const struct deletion *what, uint64_t *count)
{
    int64_t deleted;
    int r = pst_transaction_begin(c);

    if (r < 0)
        return r;
    pst_assert(!sqlite3_get_autocommit(c->db));
    deleted = what->service ? delete_of_service(c, what) : delete_keys(c, what);
    r = pst_transaction_end(c, deleted < 0 ? (int)deleted : 0);
    if (r == 0)
        *count = (uint64_t)deleted;
    return r;
}

/* In a full file there is no room to note what is withdrawn; what makes room goes on without. */
static int delete_in_any_case(struct pst_catalogue *c, const struct deletion *what, uint64_t *count)
{
    int r = delete_try(c, what, count);

    if (r != -ENOSPC)
        return r;
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    r = delete_try(c, what, count);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, NULL);
    return r;
}

int pst_catalogue_delete(struct pst_catalogue *c, struct pst_bytes key, int flags, uint64_t *count)
{
    const struct deletion what = {.key = key, .flags = flags};

    pst_assert(!(flags & ~(PST_DELETE_RECURSIVE | PST_DELETE_PREFIX)));
    if (!pst_key_fits(key)) /* the root's neither: see root.h */
        return -EINVAL;
    return delete_in_any_case(c, &what, count);
}

int pst_catalogue_service_cleanup(struct pst_catalogue *c, const char *service, const char *namespace,
                                  uint64_t *count)
{
    const struct deletion what = {.service = service, .namespace = namespace};

    if (!pst_service_fits(service, namespace))
        return -EINVAL;
    return delete_in_any_case(c, &what, count);
}
