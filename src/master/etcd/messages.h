/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages.h: what etcd is asked, and what it answers, as JSON of its gateway. Keys and values are base64
 * there, and 64-bit numbers texts. Pure. An answer is anyone's text until it is read here: what does not have
 * the form is -EPROTO, and what is longer than it may be -EFBIG.
 */
#ifndef PST_ETCD_MESSAGES_H
#define PST_ETCD_MESSAGES_H

#include "base/options.h"
#include "http/json.h"

enum { PST_ETCD_ENTRIES_MAX = 4 /* of an answer */ };

/* Malloc()ed, with a NUL; NULL without memory. */
char *pst_etcd_base64(struct pst_bytes data);
/* Return: 0, with @out malloc()ed unless it is empty; -EPROTO, -EFBIG, -ENOMEM. */
int pst_etcd_unbase64(const char *text, size_t bytes_max, struct pst_bytes *out);

/* ---- leases ---- */

/* {"TTL": ...}, {"ID": ...}, {"name": ..., "password": ...}. NULL without memory. */
struct pst_json *pst_etcd_grant(uint64_t ttl_s);
struct pst_json *pst_etcd_lease(int64_t lease);
struct pst_json *pst_etcd_user(const char *name, const char *password);

/* Of a grant, or a renewal. @ttl_s: 0: there is no such lease any more. Return: 0, -EPROTO. */
int pst_etcd_get_lease(const struct pst_json *answer, int64_t *lease, uint64_t *ttl_s);

/* ---- transactions: if all conditions hold, all of one list is done, else all of the other ---- */

/* Zero-initialise; filled by the calls below, and emptied by the last. */
struct pst_etcd_txn {
    struct pst_json *conditions, *then, *otherwise;
    int error;
};

/* The key's value was set at that revision, or the key itself was made then; 0: there is no such key. */
void pst_etcd_if_set(struct pst_etcd_txn *txn, const char *key, int64_t revision);
void pst_etcd_if_made(struct pst_etcd_txn *txn, const char *key, int64_t revision);
/* @lease: with which it goes; 0: none. */
void pst_etcd_then_put(struct pst_etcd_txn *txn, const char *key, struct pst_bytes value, int64_t lease);
void pst_etcd_then_get(struct pst_etcd_txn *txn, const char *key);
/* The same without the value. */
void pst_etcd_then_look(struct pst_etcd_txn *txn, const char *key);
void pst_etcd_else_get(struct pst_etcd_txn *txn, const char *key);
/* Return: the question, or NULL without memory. */
struct pst_json *pst_etcd_txn_end(struct pst_etcd_txn *txn);

/* A key that was asked for; of a put, none. */
struct pst_etcd_entry {
    bool there;
    int64_t made, set; /* revisions */
    int64_t lease;
    struct pst_bytes value;
};

struct pst_etcd_done {
    bool held; /* the conditions did */
    int64_t revision;
    struct pst_etcd_entry entries[PST_ETCD_ENTRIES_MAX]; /* in the order of what was done */
    uint32_t count;
};

/* @value_bytes_max: of a value. Return: 0, with @out to be ended; -EPROTO, -EFBIG, -ENOMEM. */
int pst_etcd_get_done(const struct pst_json *answer, size_t value_bytes_max, struct pst_etcd_done *out);
void pst_etcd_done_fini(struct pst_etcd_done *done);

#endif
