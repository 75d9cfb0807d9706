/* SPDX-License-Identifier: Apache-2.0 */
/* call_priv.h: what the files of call/ share: the channel and its requests. */
#ifndef PST_CALL_PRIV_H
#define PST_CALL_PRIV_H

#include "call/bulk.h"
#include "call/call.h"
#include "call/words_priv.h"
#include "base/list.h"

enum {
    CALLS_MAX = PST_WIRE_PLACES, /* requests in flight */
    WAITS_MAX = 512,             /* of them gets that wait, each alone in its request */
    CALL_BODY_BYTES = PST_NET_EAGER_BYTES_MAX,
    CALL_BODY_FULL = CALL_BODY_BYTES - PST_WIRE_OP_BYTES_MAX, /* from here on another might not fit */
    BULK_MESSAGES_MAX = 4096,                                 /* transport operations in flight */
    PIECES_MAX = PST_OP_PIECES_MAX,
};

_Static_assert((CALLS_MAX & (CALLS_MAX - 1)) == 0, "a request's place is its low bits");
_Static_assert((int)PST_WIRE_BODY_BYTES_MAX + (int)PST_WIRE_OP_BYTES_MAX - (int)PST_WIRE_INLINE_BYTES_MAX -
                       (int)PST_WIRE_KEY_BYTES_MAX <=
                   (int)CALL_BODY_BYTES,
               "a commit, and a question with its key, are one message");
_Static_assert(sizeof(struct pst_wire_head) + PST_WIRE_PARTS_MAX * sizeof(struct pst_wire_part) <=
                   PST_NET_HEADER_BYTES_MAX,
               "the parts of a bulk message are its header");

#define PST_CHANNEL_MAGIC 0x63686e6cu
#define PST_CALL_MAGIC    0x63616c6cu
#define PST_BULK_IN_MAGIC 0x62756c6bu

enum call_state {
    CALL_IDLE, /* ended: what still comes for its number comes late */
    CALL_OPEN, /* takes operations, or waits to be sent */
    CALL_SENT, /* answers may come */
};

/* One request to one shard: a message, its bulk messages in both directions, its reply. */
struct pst_call {
    uint32_t magic;
    struct pst_list link; /* in the channel's idle, unsent or sent list */
    struct pst_channel *channel;
    uint32_t id;
    uint32_t shard;
    uint16_t count;
    enum call_state state;
    bool replied;
    bool values_in_bulk;                 /* puts whose values follow by BULK */
    bool waits;                          /* its one operation may be answered late */
    const struct pst_traceparent *trace; /* of all its operations; NULL: none */
    struct pst_bulk_cursor bulk_out;
    uint32_t bulks_out;  /* begun to be sent */
    uint32_t bulks_next; /* index of the one to be taken next */
    uint32_t sends;      /* of ours that the transport still holds */
    uint32_t bulks_expected, bulks_arrived, bulks_arriving;
    uint64_t deadline_ns;
    uint8_t *body;
    size_t body_bytes;
    struct penstock_op *ops[PST_WIRE_OPS_MAX];
    uint32_t crcs[PST_WIRE_OPS_MAX]; /* of gets whose value carries one */
    uint8_t replicas[PST_WIRE_OPS_MAX];
    bool crc_wanted[PST_WIRE_OPS_MAX];
    bool attrs_came[PST_WIRE_OPS_MAX];
    uint16_t attr_bytes[PST_WIRE_OPS_MAX]; /* of the value, where they came */
    uint64_t promised[PST_WIRE_OPS_MAX];   /* bytes that the reply says come by bulk */
    uint64_t announced[PST_WIRE_OPS_MAX];  /* bytes that bulk messages have begun to bring, in order */
};

/* A bulk message on its way into callers' buffers. */
struct bulk_in {
    uint32_t magic;
    struct pst_call *call;
    void *bounce; /* when the buffers are in too many pieces: copied from here on arrival */
    struct pst_wire_part parts[PST_WIRE_PARTS_MAX];
    uint32_t part_count;
};

/* Behind DOWN: on the way up, in their order. */
enum channel_state {
    CHANNEL_UP,
    CHANNEL_CLOSING,
    CHANNEL_DOWN,
    CHANNEL_PAUSE,   /* until it is tried again */
    CHANNEL_WELCOME, /* the node's socket: reached, authenticated */
    CHANNEL_READY,   /* ... and addresses swapped */
    CHANNEL_HELLO,   /* every shard answers over the transport */
};

enum { FAULT_BYTES = 160 };

/* To connect, until it is given up. */
struct connect_attempt {
    uint64_t begun_ns, deadline_ns;
    uint64_t until_ns; /* of a pause, or of the shards' answers */
    uint32_t hellos;   /* that nobody answered */
    uint32_t absences; /* of the node */
    bool second;       /* of two hellos */
    bool silent;       /* the shards said nothing in time */
    bool far;          /* at the address, or nothing is nearer */
    bool stream;       /* there is no UCX here that could be used */
    int error;         /* of the transport, while hellos are on their way */
};

struct pst_channel {
    uint32_t magic;
    enum channel_state state;
    struct pst_channel_options options;
    struct pst_boot_welcome welcome;
    uint32_t grant; /* pst_grant_number() of what the node allows; 0: anything */
    struct pst_boot_link *boot;
    int arena_fds[PST_BOOT_ARENAS_MAX];
    uint32_t arena_count;
    struct pst_net *net;    /* UCX's; NULL: no session has used it yet */
    struct pst_net *stream; /* the same of the stream */
    struct pst_port *port;
    struct pst_peer *peers[PST_BOOT_SHARDS_MAX];
    uint32_t peers_open;
    uint64_t session;
    uint64_t requests; /* sent */
    uint32_t welcomed; /* shards that answered the hello */
    bool welcomed_by[PST_BOOT_SHARDS_MAX];
    struct pst_bulk_park park; /* bulk messages before their turn */

    struct pst_call *calls[CALLS_MAX]; /* made when first needed */
    uint32_t call_count;
    struct pst_list idle, unsent, sent;
    struct pst_call *filling[PST_BOOT_SHARDS_MAX]; /* the request that takes a shard's next operation */
    uint32_t wait_count;                           /* gets that wait at the node */
    struct pst_op_list waiting;                    /* operations that no request could take yet */
    uint64_t waiting_until_ns;                     /* not before */
    uint64_t waiting_due_ns;                       /* none of them is overdue before */
    uint64_t submit_ns;      /* the clock for what is submitted before a request is sent; 0: to be read */
    uint64_t submit_tick_ns; /* when it was read */
    uint64_t tick_ns;        /* when timers are looked at next */
    uint32_t polls;
    uint64_t retry_ns; /* DOWN: when to connect next */
    uint32_t retry_ms;
    uint64_t closing_ns; /* CLOSING: since when */
    int down_error;
    char fault[FAULT_BYTES]; /* of the last attempt, in words */
    struct connect_attempt attempt;
};

struct pst_channel *pst_channel_cast(void *p);

/* ---- channel.c ---- */

/* Begins to end the session: everything underway is settled once the transport has let go of it. */
void pst_channel_break(struct pst_channel *ch, int error);
/* Looks at the session's socket, at deadlines and at what waits. */
void pst_channel_tick(struct pst_channel *ch, uint64_t now_ns);

/* ---- connect.c ---- */

void pst_connect_begin(struct pst_channel *ch, uint64_t now_ns);
/* As far as what has come allows: it is UP then, DOWN with down_error, or still on its way. */
void pst_connect_step(struct pst_channel *ch, uint64_t now_ns);
/* For a moment, for who has nothing else to do. */
void pst_connect_wait(const struct pst_channel *ch);
/* Closes what there is of a session: the channel is DOWN. */
void pst_session_drop(struct pst_channel *ch);

static inline bool pst_connecting(const struct pst_channel *ch)
{
    return ch->state > CHANNEL_DOWN;
}

/* ---- op.c ---- */

/* True for operations on what ends with its session; *@result: how they end then. */
bool pst_op_orphaned(const struct penstock_op *op, int *result);

/* ---- request.c ---- */

void pst_call_ready(struct pst_call *call); /* looks whether the request is complete */
void pst_call_settle(struct pst_call *call,
                     uint64_t now_ns); /* after a break: ends or keeps its operations */
void pst_call_send(struct pst_call *call);
void pst_calls_send_unsent(struct pst_channel *ch);
void pst_calls_retry_waiting(struct pst_channel *ch, uint64_t now_ns);
void pst_call_free(struct pst_call *call);

/* ---- answer.c ---- */

void pst_channel_on_message(struct pst_channel *ch, struct pst_net_event *event);
void pst_channel_on_bulk(struct pst_channel *ch, struct pst_net_event *event);
void pst_channel_on_received(struct bulk_in *in, int status);
struct bulk_in *pst_bulk_in_cast(void *p);

#endif
