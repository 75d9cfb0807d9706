/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue_priv.h: the catalogue's statements, prepared once, and what its files share. For catalogue.c and
 * its neighbours alone. Where a statement needs a key, it is ?1, and where it needs the time, that is ?2.
 */
#ifndef PST_FILES_CATALOGUE_PRIV_H
#define PST_FILES_CATALOGUE_PRIV_H

#include "files/catalogue/catalogue.h"

#include <sqlite3.h>

#define CATALOGUE_MAGIC 0x63617461u

_Static_assert(PST_SOURCE_LIFE_MS == 3600000 && PST_LIFESPAN_CLUSTER == 1 && PST_LIFESPAN_RESOURCE == 2,
               "numbers in the texts below");

/* Whether a source has not expired; PST_SOURCE_LIFE_MS. At the time 0 all are there. */
#define SQL_ALIVE  "(s.is_store = 1 OR s.published_ms > ?2 - 3600000)"
#define SQL_OF_KEY "FROM sources s WHERE s.key_id = (SELECT id FROM keys WHERE key = ?1) AND " SQL_ALIVE
#define SQL_SOURCE                                                                                           \
    "SELECT s.ip, s.pod_name, s.namespace, s.src_path, s.data_type, s.is_store, s.published_ms, (SELECT "    \
    "count(*) FROM requests r WHERE r.key_id = s.key_id AND r.ip = s.ip AND r.until_ms > ?2) AS underway, "  \
    "s.key_id " SQL_OF_KEY
#define SQL_KEY                                                                                              \
    "SELECT k.key, k.lifespan, k.service, k.namespace, "                                                     \
    "(SELECT s.ip FROM sources s WHERE s.key_id = k.id AND s.is_store = 1), "                                \
    "(SELECT s.pod_name FROM sources s WHERE s.key_id = k.id AND s.is_store = 0 AND " SQL_ALIVE              \
    " ORDER BY s.ip LIMIT 1), "                                                                              \
    "(SELECT count(*) FROM sources s WHERE s.key_id = k.id AND " SQL_ALIVE ") FROM keys k "

#define CATALOGUE_STATEMENTS(X)                                                                              \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                              \
    X(COMMIT, "COMMIT")                                                                                      \
    X(ROLLBACK, "ROLLBACK")                                                                                  \
    X(PUT_KEY, "INSERT INTO keys (key, lifespan, service, namespace) VALUES (?1, max(?2, 1), ?3, ?4) "       \
               "ON CONFLICT (key) DO UPDATE SET lifespan = iif(?2 = 0, lifespan, ?2), "                      \
               "service = iif(?3 = '', service, ?3), namespace = iif(?3 = '', namespace, ?4) "               \
               "RETURNING id")                                                                               \
    X(PUT_SOURCE, "INSERT INTO sources VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "                             \
                  "ON CONFLICT (key_id, ip) DO UPDATE SET pod_name = excluded.pod_name, "                    \
                  "namespace = excluded.namespace, src_path = excluded.src_path, "                           \
                  "data_type = excluded.data_type, is_store = max(is_store, excluded.is_store), "            \
                  "published_ms = excluded.published_ms")                                                    \
    X(DROP_STORE, "DELETE FROM sources WHERE key_id = ?1 AND is_store = 1 AND ip <> ?2")                     \
    X(DROP_SOURCE, "DELETE FROM sources WHERE key_id = (SELECT id FROM keys WHERE key = ?1) AND ip = ?2")    \
    X(WITHDRAWN, "SELECT 1 FROM withdrawn WHERE key = ?1 AND ip = ?2")                                       \
    X(FORGIVE, "DELETE FROM withdrawn WHERE key = ?1 AND ip = ?2")                                           \
    X(EXPIRE_WITHDRAWN, "DELETE FROM withdrawn WHERE published_ms <= ?1")                                    \
    X(EXPIRE, "DELETE FROM sources WHERE (key_id, ip) IN (SELECT key_id, ip FROM sources "                   \
              "WHERE is_store = 0 AND published_ms <= ?1 ORDER BY published_ms LIMIT ?2)")                   \
    X(EXPIRE_REQUESTS, "DELETE FROM requests WHERE until_ms <= ?1 OR until_ms > ?2")                         \
    X(KEY, SQL_KEY "WHERE k.key = ?1")                                                                       \
    X(SOURCES, SQL_SOURCE " ORDER BY s.is_store DESC, s.ip")                                                 \
    X(CHOOSE, SQL_SOURCE " AND s.ip <> ?3 ORDER BY s.is_store, underway, s.ip")                              \
    X(ADD_REQUEST, "INSERT INTO requests (key_id, ip, until_ms) VALUES (?1, ?2, ?3)")                        \
    X(COMPLETE, "DELETE FROM requests WHERE id = (SELECT r.id FROM requests r WHERE "                        \
                "r.key_id = (SELECT id FROM keys WHERE key = ?1) AND r.ip = ?2 "                             \
                "ORDER BY r.until_ms, r.id LIMIT 1)")                                                        \
    X(LIST, SQL_KEY "WHERE k.key >= ?1 AND k.key < ?3 ORDER BY k.key")                                       \
    X(DELETE_ONE, "DELETE FROM keys WHERE key = ?1")                                                         \
    X(DELETE_RANGE, "DELETE FROM keys WHERE key >= ?1 AND key < ?2")                                         \
    X(DELETE_LEVEL, "DELETE FROM keys WHERE key >= ?1 AND key < ?2 AND instr(substr(key, ?3), x'2f') = 0")   \
    X(CLEAN_UP, "DELETE FROM keys WHERE service = ?1 AND namespace = ?2 AND lifespan = 2")                   \
    X(OF_SERVICE, SQL_KEY "WHERE k.service = ?1 AND k.namespace = ?3 AND k.lifespan = 2")                    \
    X(STATS, "SELECT (SELECT count(*) FROM keys), (SELECT count(*) FROM sources), "                          \
             "(SELECT count(*) FROM sources WHERE is_store = 1)")

enum catalogue_statement {
#define CATALOGUE_ENUM(name, sql) ST_##name,
    CATALOGUE_STATEMENTS(CATALOGUE_ENUM) ST_COUNT
};

struct pst_catalogue {
    uint32_t magic;
    bool calling; /* in a callback */
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[ST_COUNT];
};

/* What SQLite's last call on the connection returned, as -errno with a text that names the file. */
int pst_catalogue_fail(const struct pst_catalogue *catalogue, int code);

/* The statement, ready to be bound. Nothing else of this catalogue runs. */
sqlite3_stmt *pst_statement(struct pst_catalogue *catalogue, enum catalogue_statement which);
/* What is bound stays where it is until pst_statement_end(). */
void pst_bind_bytes(sqlite3_stmt *statement, int at, struct pst_bytes bytes);
void pst_bind_text(sqlite3_stmt *statement, int at, const char *text); /* NULL as "" */
void pst_bind_number(sqlite3_stmt *statement, int at, uint64_t number);
/* Return: 1 there is a row, 0 no more, -errno. */
int pst_statement_step(struct pst_catalogue *catalogue, sqlite3_stmt *statement);
void pst_statement_end(sqlite3_stmt *statement);
/* Steps once, and ends. Return: 0 or -errno. */
int pst_statement_run(struct pst_catalogue *catalogue, sqlite3_stmt *statement);
/* Of the row: "" for NULL. */
const char *pst_column_text(sqlite3_stmt *statement, int at);

/* Forgets requests that nobody completed. Return: 0 or -errno. */
int pst_catalogue_forget_requests(struct pst_catalogue *catalogue, uint64_t now_ms);

/* A transaction ends with the @result so far: it is kept if that is 0. Return: @result, or why it is not. */
int pst_transaction_begin(struct pst_catalogue *catalogue);
int pst_transaction_end(struct pst_catalogue *catalogue, int result);

/* Whether a key, a text may be kept. */
static inline bool pst_key_fits(struct pst_bytes key)
{
    return key.len > 0 && key.len <= PST_KEY_BYTES_MAX;
}

static inline bool pst_text_fits(const char *text, size_t bytes_max)
{
    return !text || strnlen(text, bytes_max + 1) <= bytes_max;
}

static inline bool pst_ip_fits(const char *ip)
{
    return ip && *ip && pst_text_fits(ip, PST_IP_BYTES_MAX);
}

static inline bool pst_service_fits(const char *service, const char *namespace)
{
    return service && *service && pst_text_fits(service, PST_NAME_BYTES_MAX) &&
           pst_text_fits(namespace, PST_NAME_BYTES_MAX);
}

/* What follows all keys that begin with @prefix, in @end. Return: its bytes. */
enum { PST_PREFIX_END_CAP = PST_KEY_BYTES_MAX + 1 };
size_t pst_catalogue_prefix_end(struct pst_bytes prefix, uint8_t end[PST_PREFIX_END_CAP]);

#endif
