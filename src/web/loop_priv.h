/* SPDX-License-Identifier: Apache-2.0 */
/* loop_priv.h: the loop's descriptors and parties, as the files that have some see them. The loop's thread.
 */
#ifndef PST_WEB_LOOP_PRIV_H
#define PST_WEB_LOOP_PRIV_H

#include "base/list.h"

#include <libwebsockets.h>

#define PARTY_MAGIC 0x70617274u

struct pst_web;
struct party;

/* A descriptor in the loop's set. */
struct watch {
    int fd; /* -1: none */
    uint32_t events;
    bool silent; /* not in the set: a hang-up, which cannot be masked, has been seen */
    struct party *party;
    void (*ready)(struct pst_web *web, struct watch *watch, uint32_t events);
};

enum yields {
    YIELDS_NOT,
    YIELDS_LAST,  /* it has been answered and asks for nothing, or is a stranger that takes no answer */
    YIELDS_FIRST, /* nothing has come of it that could be answered */
};

struct party_ops {
    void (*tick)(struct party *party, uint64_t now_ns);
    enum yields (*yields)(const struct party *party); /* its seat to a newcomer; NULL: never */
    /* Of a party that libwebsockets has a connection for. Return: as its callbacks. */
    int (*told)(struct party *party, struct lws *wsi, enum lws_callback_reasons reason, void *in, size_t len);
    void (*drop)(struct party *party);  /* it ends, now or soon; NULL: as close */
    void (*close)(struct party *party); /* when the server ends */
    void (*free)(struct party *party);
};

struct party {
    uint32_t magic;
    const struct party_ops *ops;
    struct pst_web *web;
    struct pst_list link; /* of web->parties, or when closed of web->dead */
    bool seated;          /* counts as a client */
    struct party *inside; /* of TLS: what speaks HTTP in it, as long as that does */
    struct party *around; /* of that: the TLS, which has its seat */
    bool passes;          /* it is passed on to a tunnel's server, or a WebSocket */
    uint64_t moved_ns;    /* when, of what is passed on, something last was; or what a WebSocket says */
};

void watch_init(struct watch *watch, struct party *party,
                void (*ready)(struct pst_web *, struct watch *, uint32_t));
/* Takes @fd over, in failure too. Return: 0 or -errno. */
int watch_open(struct pst_web *web, struct watch *watch, int fd, uint32_t events);
void watch_set(struct pst_web *web, struct watch *watch, uint32_t events);
/* Out of the set for good: its hang-up is known. */
void watch_silence(struct pst_web *web, struct watch *watch);
/* Out of the set. Return: the descriptor, the caller's. */
int watch_give(struct pst_web *web, struct watch *watch);
void watch_close(struct pst_web *web, struct watch *watch);

void party_open(struct party *party, const struct party_ops *ops, struct pst_web *web);
/* @around is the TLS of @inside, until either has closed. */
void party_enclose(struct party *inside, struct party *around);
/* The memory follows at the end of the round. */
void party_close(struct party *party);
/* @to is the client's from now on. */
void party_pass_seat(struct party *from, struct party *to);
int loop_open(struct pst_web *web);
void loop_close(struct pst_web *web);
void *loop_main(void *arg);
void loop_wake(struct pst_web *web);

/* Whether nothing has happened for longer than a peer may take. */
bool web_is_late(const struct pst_web *web, uint64_t since_ns, uint64_t now_ns);
/* The same of a party that is passed on. @waits: for its end, or its beginning. */
bool party_is_late(const struct party *party, bool waits, uint64_t now_ns);
/* Room for one more that is passed on, or a WebSocket; if need be, one that has not moved ends. Return:
 * whether there is. */
bool loop_make_passage(struct pst_web *web);

#endif
