/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_priv.h: the server as its routes see it. Requests are answered on web's workers, several at once: one
 * lock lets one of them at the catalogue; the folder of files needs none.
 */
#ifndef PST_AGENT_STORE_PRIV_H
#define PST_AGENT_STORE_PRIV_H

#include "agent/store.h"
#include "files/carry/carry.h"
#include "files/catalogue/catalogue.h"
#include "files/key.h"
#include "files/relay/broadcasts.h"
#include "files/root.h"
#include "files/rsync/rsyncd.h"
#include "http/json.h"
#include "web/web.h"

#include <pthread.h>

struct broadcasts;
struct exchanges;
struct pst_quorums;

struct pst_data_store {
    const struct pst_data_store_settings *settings;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    char address[PST_IP_BYTES_MAX + 1]; /* of this store's rsync, for pods */
    bool address_is_said;               /* and no client knows better */
    char host[16];                      /* where its rsync daemon is reached from here, an IPv4 address */
    struct pst_root *files;
    struct pst_rsyncd *rsyncd;
    struct pst_broadcasts *rows; /* pipelined broadcasts */
    struct pst_carry_server *trees;
    struct pst_web *web;
    pthread_mutex_t lock; /* of the catalogue */
    struct pst_catalogue *catalogue;
    struct broadcasts *broadcasts;
    struct exchanges *exchanges;
    pthread_mutex_t quorums_lock;
    struct pst_quorums *quorums;
    pthread_t sweeper;
    bool sweeps;
    int stop_fd;
};

/* A request underway, on its worker. */
struct call {
    struct pst_data_store *store;
    const struct pst_web_request *request;
    struct pst_web_answer *answer;
    char namespace[PST_NAME_BYTES_MAX + 1];
    char key[PST_KEY_CAP]; /* namespace + '/' + the key: the catalogue's name, and the path below files/ */
    struct pst_json *body; /* an object; NULL where the route takes none */
};

/* The key as the client knows it; "" is the namespace. */
static inline const char *call_key(const struct call *call)
{
    size_t namespace_bytes = strlen(call->namespace);

    return call->key[namespace_bytes] ? call->key + namespace_bytes + 1 : "";
}

/* ---- reply.c ---- */

/* Answers with @json, which is taken over; NULL: there was no memory for it. */
void reply_json(struct call *call, int status, struct pst_json *json);
/* {"detail": text} */
void reply_detail(struct call *call, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What a room below has refused. */
void reply_error(struct call *call, int error);
/* {"success": true}, to which a route may add. NULL without memory. */
struct pst_json *reply_success(void);
/* A member of the body. Return: its text, "" if it is not there or null; NULL: refused, it is no text. */
const char *body_text(struct call *call, const char *name);
/* The same for one that must be there. */
const char *body_text_needed(struct call *call, const char *name);
/* Whether it may go into an rsync URL as it is. */
bool is_address(const char *ip);
/* The member "ip", an address. Return: NULL: refused. */
const char *body_ip(struct call *call);
bool query_flag(const struct call *call, const char *name);

/* ---- routes: each answers ---- */

void key_info(struct call *call);
void key_source(struct call *call);
void key_publish(struct call *call);
void key_store(struct call *call);
void key_complete(struct call *call);
void key_remove_source(struct call *call, struct pst_bytes raw_ip);
void key_mkdir(struct call *call);
void key_delete(struct call *call);
void key_replace(struct call *call);
void keys_list(struct call *call);
void service_cleanup(struct call *call, struct pst_bytes raw_service);
void gpu_publish(struct call *call);
void gpu_source(struct call *call);
void broadcast_unreachable(struct call *call);
void broadcast_groups(struct call *call);
void broadcast_rows(struct call *call, struct pst_bytes raw_group);
void exchange_groups(struct call *call);
void quorum_join(struct call *call);
void quorum_status(struct call *call, struct pst_bytes raw_id);
void quorum_complete(struct call *call, struct pst_bytes raw_id);

/* The namespace that a query names, or without one the store's. Return: 0, or -errno it cannot be. */
int store_namespace(const struct pst_data_store *store, struct pst_bytes query,
                    char namespace[PST_NAME_BYTES_MAX + 1]);
/* The full key of @text, which is not encoded; its ".." end at @namespace. Return: 0 or -errno. */
int store_full_key(const char *namespace, const char *text, char out[PST_KEY_CAP]);
/* The same of NAMESPACE/KEY. -EINVAL also: the namespace cannot be one. */
int store_full_key_of(const char *name, char out[PST_KEY_CAP]);
/* Whether the key is among the files: what the catalogue says of the store counts only with that. */
bool key_is_stored(const struct call *call);
/* Now, in ms since 1970. */
uint64_t now_ms(void);

/* ---- sockets.c ---- */

/* Of the web's loop; the context is the store. */
extern const struct pst_web_ops store_web_ops;

/* ---- broadcast.c, of files; exchange.c, of tensors ---- */

/* Return: 0 or -errno; closed either way. */
int broadcasts_open(struct pst_data_store *store);
void broadcasts_sweep(struct broadcasts *broadcasts);
/* After the web: nobody joins any more. */
void broadcasts_close(struct broadcasts *broadcasts);
/* The same. */
int exchanges_open(struct pst_data_store *store);
void exchanges_close(struct exchanges *exchanges);

/* ---- routes.c ---- */

void store_answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer);

#endif
