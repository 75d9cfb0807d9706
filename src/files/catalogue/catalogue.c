/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.c: the file of the catalogue, opened and checked. Nothing is written to it before it is known to
 * be ours. Requests underway lie in the connection's temporary database, in memory; a trigger forgets those
 * of a source that goes.
 */
#include "files/catalogue/catalogue_priv.h"
#include "base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
    APPLICATION_ID = 0x70737463, /* "pstc" */
    SCHEMA_VERSION = 2,
    PAGE_BYTES = 4096,
    FILE_BYTES_MIN = 64 << 10,
    REQUEST_PAGES = 16384, /* of memory for requests underway, 64 MiB */
};

/* Version 1: a key goes with its last source, and sources with their key. */
static const char schema_sources[] =
    "CREATE TABLE keys (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, lifespan INTEGER NOT NULL,"
    " service TEXT NOT NULL, namespace TEXT NOT NULL) STRICT;"
    "CREATE TABLE sources (key_id INTEGER NOT NULL REFERENCES keys ON DELETE CASCADE, ip TEXT NOT NULL,"
    " pod_name TEXT NOT NULL, namespace TEXT NOT NULL, src_path TEXT NOT NULL, data_type TEXT NOT NULL,"
    " is_store INTEGER NOT NULL, published_ms INTEGER NOT NULL, PRIMARY KEY (key_id, ip))"
    " STRICT, WITHOUT ROWID;"
    "CREATE INDEX key_service ON keys (service, namespace) WHERE service <> '';"
    "CREATE INDEX source_age ON sources (published_ms) WHERE is_store = 0;"
    "CREATE INDEX source_store ON sources (key_id) WHERE is_store = 1;"
    "CREATE TRIGGER source_last AFTER DELETE ON sources"
    " WHEN NOT EXISTS (SELECT 1 FROM sources WHERE key_id = old.key_id)"
    " BEGIN DELETE FROM keys WHERE id = old.key_id; END;";

/* Version 2: peers' sources that went because their key was deleted, the last 65,536 of them. A key
 * that goes with its last source has none by then. */
static const char schema_withdrawn[] =
    "CREATE TABLE withdrawn (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL, ip TEXT NOT NULL,"
    " published_ms INTEGER NOT NULL, UNIQUE (key, ip)) STRICT;"
    "CREATE INDEX withdrawn_age ON withdrawn (published_ms);"
    "CREATE TRIGGER key_deleted BEFORE DELETE ON keys BEGIN"
    " INSERT OR REPLACE INTO withdrawn (key, ip, published_ms)"
    " SELECT old.key, ip, published_ms FROM sources WHERE key_id = old.id AND is_store = 0;"
    " DELETE FROM withdrawn WHERE id <= (SELECT max(id) FROM withdrawn) - 65536; END;";

/* What each version added to the one before. */
static const char *const schemas[] = {schema_sources, schema_withdrawn};

_Static_assert(pst_count_of(schemas) == SCHEMA_VERSION, "a text for each version");

static const char requests[] =
    "CREATE TEMP TABLE requests (id INTEGER PRIMARY KEY, key_id INTEGER NOT NULL, ip TEXT NOT NULL,"
    " until_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX temp.request_source ON requests (key_id, ip, until_ms);"
    "CREATE INDEX temp.request_end ON requests (until_ms);"
    "CREATE TEMP TRIGGER request_source_gone AFTER DELETE ON main.sources"
    " BEGIN DELETE FROM requests WHERE key_id = old.key_id AND ip = old.ip; END;";

static int execute(struct pst_catalogue *c, const char *sql)
{
    int code = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? 0 : pst_catalogue_fail(c, code);
}

/* The first column of the first row as a text. */
static int ask(struct pst_catalogue *c, const char *sql, char *answer, size_t cap)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(c->db, sql, -1, &statement, NULL), r;

    pst_assert(cap > 0);
    if (code != SQLITE_OK)
        return pst_catalogue_fail(c, code);
    r = pst_statement_step(c, statement);
    snprintf(answer, cap, "%s", r == 1 ? pst_column_text(statement, 0) : "");
    sqlite3_finalize(statement);
    return r < 0 ? r : 0;
}

static int ask_number(struct pst_catalogue *c, const char *sql, int64_t *number)
{
    char answer[32];
    int r = ask(c, sql, answer, sizeof(answer));

    if (r == 0)
        *number = strtoll(answer, NULL, 10);
    return r;
}

/* ---- the file, before SQLite sees it ---- */

static int check_folder(const struct pst_catalogue *c)
{
    const char *slash = strrchr(c->path, '/');
    pst_cleanup_free char *folder =
        slash ? strndup(c->path, pst_max((size_t)(slash - c->path), 1)) : strdup(".");
    pst_cleanup_close int fd = -1;

    if (!folder)
        return pst_fail(-ENOMEM, "out of memory");
    fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail(-errno, "catalogue %s: its folder: %s", c->path, strerror(errno));
    if (pst_own_check(fd, S_IFDIR, PST_OWN_WRITES) < 0)
        return pst_fail(-EPERM, "catalogue %s: its folder: %s", c->path, pst_error_text());
    return 0;
}

/* The file is there afterwards, and this user's. A descriptor that could read it would let go of SQLite's
 * locks when it is closed, if this process had the file open already: one of O_PATH does not. */
static int check_file(const struct pst_catalogue *c)
{
    int fd = pst_own_open(AT_FDCWD, c->path, O_PATH);

    if (fd == -ENOENT)
        fd = pst_own_open(AT_FDCWD, c->path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return pst_fail(fd, "catalogue %s: %s", c->path, pst_error_text());
    close(fd);
    return 0;
}

/* ---- what SQLite finds in it ---- */

/* Return: 0 and the version of its tables in *@out, 0 if it is empty; or -errno. */
static int judge(struct pst_catalogue *c, int64_t *out)
{
    int64_t application = 0, version = 0, tables = 0;
    int r = ask_number(c, "PRAGMA application_id", &application);

    if (r == 0)
        r = ask_number(c, "PRAGMA user_version", &version);
    if (r == 0)
        r = ask_number(c, "SELECT count(*) FROM sqlite_schema", &tables);
    if (r < 0)
        return r;
    *out = version;
    if (application == 0 && version == 0 && tables == 0)
        return 0;
    if (application != APPLICATION_ID)
        return pst_fail(-EEXIST, "catalogue %s: it is another program's database", c->path);
    if (version > SCHEMA_VERSION)
        return pst_fail(-EPROTONOSUPPORT,
                        "catalogue %s has version %" PRId64 ", this penstock reads version %d", c->path,
                        version, SCHEMA_VERSION);
    if (version < 1)
        return pst_fail(-EBADMSG, "catalogue %s is damaged: it has version %" PRId64, c->path, version);
    return 0;
}

static int use_wal(struct pst_catalogue *c)
{
    char mode[16];
    int r = ask(c, "PRAGMA journal_mode = WAL", mode, sizeof(mode));

    if (r == 0 && strcmp(mode, "wal") != 0)
        r = pst_fail(-EIO, "catalogue %s: no write-ahead log on this file system (%s)", c->path, mode);
    return r == 0 ? execute(c, "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 16777216;") : r;
}

static int check_whole(struct pst_catalogue *c)
{
    char answer[256];
    int r = ask(c, "PRAGMA quick_check(1)", answer, sizeof(answer));

    if (r == 0 && strcmp(answer, "ok") != 0)
        r = pst_fail(-EBADMSG, "catalogue %s is damaged: %s", c->path, answer);
    return r;
}

/* Makes what a file of @version lacks. */
static int make_tables(struct pst_catalogue *c, int64_t version)
{
    char versions[96];
    int r = execute(c, "BEGIN IMMEDIATE");

    pst_assert(version >= 0 && version < SCHEMA_VERSION);
    snprintf(versions, sizeof(versions), "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
             APPLICATION_ID, SCHEMA_VERSION);
    for (; r == 0 && version < SCHEMA_VERSION; version++)
        r = execute(c, schemas[version]);
    return r == 0 ? execute(c, versions) : r; /* what is not committed goes with the connection */
}

static int bound(struct pst_catalogue *c, uint64_t bytes_max)
{
    int64_t page_bytes = PAGE_BYTES;
    char sql[128];
    int r = ask_number(c, "PRAGMA page_size", &page_bytes);

    if (r < 0)
        return r;
    pst_assert(page_bytes >= 512);
    snprintf(sql, sizeof(sql), "PRAGMA main.max_page_count = %" PRIu64 "; PRAGMA temp.max_page_count = %d",
             pst_min(bytes_max / (uint64_t)page_bytes, UINT32_MAX / 2), REQUEST_PAGES);
    return execute(c, sql);
}

static int prepare(struct pst_catalogue *c)
{
    static const char *const texts[ST_COUNT] = {
#define CATALOGUE_TEXT(name, sql) [ST_##name] = sql,
        CATALOGUE_STATEMENTS(CATALOGUE_TEXT)};

    pst_assert(c->db);
    pst_assert(!c->statements[0]);
    for (int i = 0; i < ST_COUNT; i++) {
        int code =
            sqlite3_prepare_v3(c->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &c->statements[i], NULL);

        if ((code & 0xff) == SQLITE_ERROR) /* it says that it has our tables */
            return pst_fail(-EBADMSG, "catalogue %s is damaged: %s", c->path, sqlite3_errmsg(c->db));
        if (code != SQLITE_OK)
            return pst_catalogue_fail(c, code);
    }
    return 0;
}

static int open_database(struct pst_catalogue *c, uint64_t bytes_max)
{
    int code = sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL), r;
    int64_t version = 0;

    if (code != SQLITE_OK)
        return pst_catalogue_fail(c, code);
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    /* Before the first look: with the lock for good, the log's index lies in memory, not in a file. */
    r = execute(c, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;"
                   "PRAGMA cell_size_check = ON; PRAGMA cache_size = -16384;");
    if (r == 0)
        r = judge(c, &version);
    if (r == 0)
        r = use_wal(c);
    if (r == 0 && version > 0)
        r = check_whole(c);
    if (r == 0 && version < SCHEMA_VERSION)
        r = make_tables(c, version);
    if (r == 0)
        r = bound(c, bytes_max);
    if (r == 0)
        r = execute(c, requests);
    return r == 0 ? prepare(c) : r;
}

int pst_catalogue_open(const char *path, uint64_t bytes_max, struct pst_catalogue **out)
{
    struct pst_catalogue *c = calloc(1, sizeof(*c));
    int r;

    if (!c || !(c->path = strdup(path))) {
        free(c);
        return pst_fail(-ENOMEM, "out of memory");
    }
    c->magic = CATALOGUE_MAGIC;
    r = bytes_max >= FILE_BYTES_MIN
            ? check_folder(c)
            : pst_fail(-EINVAL, "catalogue %s: at least %d bytes are needed", path, FILE_BYTES_MIN);
    if (r == 0)
        r = check_file(c);
    if (r == 0)
        r = open_database(c, bytes_max);
    if (r < 0) {
        pst_catalogue_close(c);
        return r;
    }
    *out = c;
    return 0;
}

struct pst_catalogue *pst_catalogue_close(struct pst_catalogue *c)
{
    if (!c)
        return NULL;
    pst_assert(c->magic == CATALOGUE_MAGIC);
    pst_assert(!c->calling);
    for (int i = 0; i < ST_COUNT; i++)
        sqlite3_finalize(c->statements[i]);
    pst_assert(sqlite3_close(c->db) == SQLITE_OK);
    c->magic = 0;
    free(c->path);
    free(c);
    return NULL;
}
