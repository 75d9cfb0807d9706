/* SPDX-License-Identifier: Apache-2.0 */
/* statement.c: SQLite's calls as the catalogue makes them, and its results as negative errno. */
#include "files/catalogue/catalogue_priv.h"
#include "base/error.h"

static int errno_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT: /* the file has what no statement here puts into it */
        return -EBADMSG;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN:
        return -EACCES;
    default:
        return -EIO;
    }
}

int pst_catalogue_fail(const struct pst_catalogue *catalogue, int code)
{
    const char *why = catalogue->db ? sqlite3_errmsg(catalogue->db) : sqlite3_errstr(code);

    pst_assert((code & 0xff) != SQLITE_MISUSE);
    pst_assert((code & 0xff) != SQLITE_RANGE);
    return pst_fail(errno_of(code), "catalogue %s: %s", catalogue->path, why);
}

sqlite3_stmt *pst_statement(struct pst_catalogue *catalogue, enum catalogue_statement which)
{
    pst_assert(catalogue->magic == CATALOGUE_MAGIC);
    pst_assert(!catalogue->calling);
    pst_assert(which < ST_COUNT);
    pst_assert(!sqlite3_stmt_busy(catalogue->statements[which]));
    return catalogue->statements[which];
}

void pst_bind_bytes(sqlite3_stmt *statement, int at, struct pst_bytes bytes)
{
    /* A blob at NULL would be SQL's NULL. */
    pst_assert(sqlite3_bind_blob64(statement, at, bytes.len ? bytes.data : "", bytes.len, SQLITE_STATIC) ==
               SQLITE_OK);
}

void pst_bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    pst_assert(sqlite3_bind_text(statement, at, text ? text : "", -1, SQLITE_STATIC) == SQLITE_OK);
}

void pst_bind_number(sqlite3_stmt *statement, int at, uint64_t number)
{
    pst_assert(number <= INT64_MAX);
    pst_assert(sqlite3_bind_int64(statement, at, (sqlite3_int64)number) == SQLITE_OK);
}

int pst_statement_step(struct pst_catalogue *catalogue, sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);

    if (code == SQLITE_ROW || code == SQLITE_DONE)
        return code == SQLITE_ROW;
    return pst_catalogue_fail(catalogue, code);
}

void pst_statement_end(sqlite3_stmt *statement)
{
    sqlite3_reset(statement); /* what it returns has been said by the step */
    sqlite3_clear_bindings(statement);
}

int pst_statement_run(struct pst_catalogue *catalogue, sqlite3_stmt *statement)
{
    int r = pst_statement_step(catalogue, statement);

    pst_statement_end(statement);
    return r < 0 ? r : 0;
}

const char *pst_column_text(sqlite3_stmt *statement, int at)
{
    const char *text = (const char *)sqlite3_column_text(statement, at);

    return text ? text : "";
}

int pst_transaction_begin(struct pst_catalogue *catalogue)
{
    pst_assert(sqlite3_get_autocommit(catalogue->db));
    return pst_statement_run(catalogue, pst_statement(catalogue, ST_BEGIN));
}

int pst_transaction_end(struct pst_catalogue *catalogue, int result)
{
    if (result == 0)
        result = pst_statement_run(catalogue, pst_statement(catalogue, ST_COMMIT));
    /* SQLite has rolled back by itself after some faults. The reason stays the first one. */
    if (result < 0 && !sqlite3_get_autocommit(catalogue->db)) {
        sqlite3_step(pst_statement(catalogue, ST_ROLLBACK));
        pst_statement_end(pst_statement(catalogue, ST_ROLLBACK));
    }
    return result;
}

size_t pst_catalogue_prefix_end(struct pst_bytes prefix, uint8_t end[PST_PREFIX_END_CAP])
{
    size_t len = prefix.len;

    pst_assert(len <= PST_KEY_BYTES_MAX);
    if (len > 0)
        memcpy(end, prefix.data, len);
    while (len > 0 && end[len - 1] == 0xff)
        len--;
    if (len > 0) {
        end[len - 1]++;
        return len;
    }
    memset(end, 0xff, PST_PREFIX_END_CAP); /* longer than the last key of all */
    return PST_PREFIX_END_CAP;
}
