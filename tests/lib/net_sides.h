/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_sides.h: what the tests of the transports share: ports with one peer each, and the events that they
 * got. All waiting has a deadline.
 */
#ifndef PST_TEST_NET_SIDES_H
#define PST_TEST_NET_SIDES_H

#include "lib/cm.h"

#include "base/clock.h"
#include "net/net.h"

#define SECOND_NS 1000000000ull

enum {
    GOT_MAX = 8192,
    EVENTS_MAX = 256,
};

extern bool network; /* which of the two a group of tests runs over */

static const size_t header_sizes[] = {0, 1, 48, 255, 256, 257, 1000, 4095, 4096};

/* A port with its one peer, and the events that nobody has asked for yet. */
struct side {
    struct pst_port *port;
    struct pst_peer *peer;
    struct pst_net_event got[GOT_MAX];
    int count;
};

struct pair {
    struct pst_net *net;
    struct side a, b;
};

/* PENSTOCK_NET=stream: frames over unix sockets and over TCP. */
bool over_stream(void);
struct pst_bytes bytes_of(const void *data, size_t len);
void fill(uint8_t *data, size_t len, uint32_t seed);
void expect_filled(const uint8_t *data, size_t len, uint32_t seed);
struct pst_net *net_open(void);
void side_connect(struct side *side, struct side *to);
void pair_open_sized(struct pair *p, uint32_t events_max);
struct pair *pair_open(void);
void pair_close(struct pair *p);
/* Return: events that came. */
int side_poll(struct side *side);
bool side_find(struct side *side, enum pst_net_kind kind, struct pst_net_event *out);
/* The next event of a kind at @side, while @other (or NULL) is polled too. */
struct pst_net_event await(struct side *side, struct side *other, enum pst_net_kind kind);
/* Sends, polling both while there is no room, and waits for the end. */
void send_whole(struct side *from, struct side *to, struct pst_bytes header, struct pst_bytes data);
void settle(struct side *a, struct side *b);
/* Sends @len bytes in @pieces_out pieces and receives them in @pieces_in, both in an order of their own. */
void bulk_once(struct side *from, struct side *to, size_t header_len, size_t len, int pieces_out,
               int pieces_in);
int over_memory(void **state);
int over_network(void **state);

/* A test over shared memory (full addresses) and over TCP (network-only addresses). */
#define BOTH(test)                                                                                           \
    {"posix: " #test, test, over_memory, NULL, NULL},                                                        \
    {                                                                                                        \
        "tcp: " #test, test, over_network, NULL, NULL                                                        \
    }

#endif
