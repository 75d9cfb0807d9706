/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry.h: trees from one folder into another, over any connected stream socket. Of the two sides one asks,
 * and the other serves; the one that has the tree is the sender. Frames and their order:
 * docs/reference/tree-protocol.md.
 *
 * A put or a get blocks its thread; a peer that does not move for stall_ms ends it. Nothing half-written is
 * ever seen under a final name, and what has arrived is used by the next try (`tree/arrival.h`).
 */
#ifndef PST_FILES_CARRY_H
#define PST_FILES_CARRY_H

#include "files/tree/arrival.h"

enum {
    PST_CARRY_VERSION = 1,
    PST_CARRY_NAME_BYTES_MAX = 8192,
    PST_CARRY_TOKEN_BYTES_MAX = 256,
    PST_CARRY_FILTERS_MAX = 256,
    PST_CARRY_FILTER_BYTES_MAX = 16 << 10, /* of all patterns: each name of a tree is compared with them */
    PST_CARRY_STALL_MS = 60000,
};

/* All of it is borrowed during a call. */
struct pst_carry_options {
    struct pst_bytes token;     /* empty: none */
    uint32_t stall_ms;          /* 0: PST_CARRY_STALL_MS */
    uint32_t flags;             /* enum pst_arrival_flags */
    struct pst_filters filters; /* of the sender's side, whoever asks */
    /* Now and then; @bytes of files have been sent, received or found there. NULL: nobody asks. */
    void (*progress)(void *ctx, uint64_t bytes, uint64_t bytes_of_all);
    void *ctx;
};

/* Where a tree lies, or is to lie. */
struct pst_carry_place {
    int folder_fd;
    const char *leaf;
    bool munged; /* as of struct pst_source */
};

/*
 * Puts the tree at @from under the name @to of the server behind @fd. Return: 0 and *@result; -errno with a
 * text in @fault, the server's among them. @fd stays open, and is of no further use.
 */
int pst_carry_put(int fd, const struct pst_carry_place *from, const char *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result,
                  char fault[PST_FAULT_BYTES]);
/* The reverse: the server's tree @from comes to @to. */
int pst_carry_get(int fd, const char *from, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result,
                  char fault[PST_FAULT_BYTES]);

/* Return: a socket to a host by name or number, or -errno with a text in @fault. */
int pst_carry_connect(const char *host, uint16_t port, uint32_t timeout_ms, char fault[PST_FAULT_BYTES]);

/* ---- a server ---- */

struct link;

struct pst_carry_server;

struct pst_carry_server_settings {
    const char *host;         /* NULL: all addresses */
    uint16_t port;            /* 0: one that is free */
    struct pst_bytes token;   /* empty: none is needed; copied */
    uint32_t connections_max; /* 0: 256 */
    uint32_t stall_ms;
    /*
     * Where the tree @name is: *@folder_fd, which the server closes, and *@leaf. @writes: it is to be made,
     * and the folders in front of it too. Any thread. Return: 0, or -errno with a text in @fault.
     */
    int (*resolve)(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES]);
    bool munged; /* all trees are */
    /* Serves what is neither a put nor a get (`files/relay`), whose peer has shown the token. NULL: nothing
     * else is served. Any thread. Return: 0, or the link's error. */
    int (*serve)(void *ctx, struct link *link, uint32_t operation, const char *name);
    void *ctx;
};

/* Return: 0, or -errno with a text in @fault. */
int pst_carry_server_open(const struct pst_carry_server_settings *settings, struct pst_carry_server **out,
                          char fault[PST_FAULT_BYTES]);
uint16_t pst_carry_server_port(const struct pst_carry_server *server);
/* Ends connections, and waits for their threads. Returns NULL. */
struct pst_carry_server *pst_carry_server_close(struct pst_carry_server *server);

#endif
