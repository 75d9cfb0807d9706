/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door_priv.h: a door as its files and services see it. Connections have streams, a stream is one call of a
 * client's. All of it belongs to the door's thread.
 */
#ifndef PST_GRPC_DOOR_PRIV_H
#define PST_GRPC_DOOR_PRIV_H

#include "gateway/gateway.h"
#include "gateway/grpc/stream_priv.h"

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>

#define DOOR_MAGIC       0x646f6f72u
#define CONNECTION_MAGIC 0x636f6e6eu

struct pst_door {
    uint32_t magic;
    const struct service *service;
    void *own; /* what the service keeps */
    int poll_fd, stop_fd, listen_fd;
    bool listening; /* listen_fd is polled */
    bool queue_watched;
    bool running; /* the thread is */
    _Atomic bool stopping;
    char address[280];
    pthread_t thread;
    struct penstock *store; /* NULL, as the queue: of a service without one */
    struct penstock_queue *queue;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct pst_list connections; /* the one without calls for longest first */
    struct pst_list dirty;       /* connections that may have something to send */
    struct pst_list wants;       /* streams whose operation goes out with the next batch */
    struct pst_list sweeps;      /* streams that take one step after another */
    struct turns large, lists;
    uint8_t *spare[LARGE_MAX]; /* memory of streams that wrote much, for the next ones */
    uint32_t spare_count;
    uint32_t connections_max, connection_count, stream_count, underway;
    uint64_t gathered_bytes; /* of messages that have not been answered, and of answers */
    int *held;               /* descriptors for connections that are not there yet */
    uint32_t held_count, held_max;
    uint64_t tick_ns;     /* of the clock, at the last tick */
    uint64_t awake_ns;    /* that the door has been awake: what its patience is measured by */
    uint64_t patience_ns; /* with a peer that is behind its pace */
    uint8_t *input;       /* what is received, DOOR_INPUT_BYTES */
};

struct connection {
    uint32_t magic;
    struct pst_door *door;
    struct pst_list link, dirty_link, streams;
    uint32_t stream_count;
    int fd;
    bool settled; /* the client's SETTINGS have come */
    bool writing; /* the socket is full, and polled for room */
    nghttp2_session *session;
    uint64_t quiet_ns; /* of the door's time: when its last call came or ended, or the client did */
    struct pace pace;  /* while the socket is full */
    size_t out_at, out_bytes;
    uint8_t out[OUT_BYTES];
};

/* ---- door.c ---- */

struct door_opening {
    const struct service *service;
    const char *address;
    bool network; /* it may be off loopback */
    uint32_t connections_max;
    uint64_t stall_ms;
    uint32_t descriptors; /* that the service needs beside those of connections */
};

/* Binds the address and lets clients wait there. Return: as of pst_tsgrpc_open(). */
int door_open(const struct door_opening *opening, struct pst_door **out, char fault[PST_FAULT_BYTES]);
/* Begins to serve. Return: 0 or -errno with the reason in @fault. */
int door_run(struct pst_door *door, char fault[PST_FAULT_BYTES]);
/* Descriptors that were held are free for the service. */
void door_let_go(struct pst_door *door, uint32_t count);

/* st->op goes out with the next batch; method->ended() follows. */
void door_begin(struct stream *st);
void door_dirty(struct connection *c);
/* A connection has ended: its descriptor's place is kept for the next one. */
void door_hold(struct pst_door *door);
/* In line for a turn, and then method->turn(). */
void turn_await(struct turns *turns, struct stream *st);
void turn_give(struct stream *st);

/* ---- connection.c ---- */

int connection_callbacks(struct pst_door *door);
/* Takes @fd over. Return: 0 or -errno. */
int connection_open(struct pst_door *door, int fd);
void connection_close(struct connection *c);
/* What epoll said. */
void connection_ready(struct connection *c, uint32_t events);
/* Sends what there is to send, a bounded share of it. */
void connection_flush(struct connection *c);
/* A call has come or ended. */
void connection_called(struct connection *c);
/* Ends what took too long. */
void connection_tick(struct connection *c, uint64_t now_ns);

#endif
