/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stub_gateway.h: a world for one door, in which nothing happens by itself: a clock, clients' sockets and a
 * store, in place of the C library's and penstock's. The door's own thread is the caller's.
 *
 * A value is told by its generation: length and bytes. What clients write is stub_pattern from its beginning.
 */
#ifndef PST_STUB_GATEWAY_H
#define PST_STUB_GATEWAY_H

#include "base/base.h"

#include <penstock/penstock.h>

enum {
    STUB_CLIENTS = 4,
    STUB_KEYS = 6, /* named "0" to "5" */
    STUB_PATTERN_BYTES = 4 << 20,
    STUB_MS = 1000000,
};

/* Bytes in a row, in memory that is there already, as far as it goes. */
struct stub_bytes {
    uint8_t *data;
    size_t bytes, room;
};

static inline void stub_append(struct stub_bytes *to, const void *data, size_t bytes)
{
    if (bytes > to->room - to->bytes) {
        to->room = 2 * (to->bytes + bytes);
        to->data = realloc(to->data, to->room);
        pst_assert(to->data);
    }
    if (bytes)
        memcpy(to->data + to->bytes, data, bytes);
    to->bytes += bytes;
}

static inline void stub_drop_front(struct stub_bytes *from, size_t bytes)
{
    pst_assert(bytes <= from->bytes);
    from->bytes -= bytes;
    if (from->bytes && bytes)
        memmove(from->data, from->data + bytes, from->bytes);
}

/* A client's end of its connection. */
struct stub_socket {
    bool open;              /* the door has it, or will accept it */
    bool accepted;          /* the door has it */
    bool hung_up;           /* the client closes behind what it has sent */
    bool busy;              /* what it has sent is more than what a client sends while it waits */
    size_t room;            /* bytes that the socket still takes from the door */
    size_t portion;         /* bytes that the door gets at a time */
    struct stub_bytes sent; /* to the door, which has not got them */
    uint32_t events;        /* as epoll was told */
    void *tag;
};

struct stub_world {
    bool running;
    uint64_t now_ns, awake_ns; /* the clock, and the same without jumps */
    uint64_t moved_ns;         /* of awake_ns: when anything moved that a client may wait for */
    struct stub_socket sockets[STUB_CLIENTS];
    uint64_t generations[STUB_KEYS]; /* 0: no value */
    uint64_t last_generation;
    size_t pending, ended; /* operations */
    uint32_t views, reservations, lists;
    bool garbage; /* clients have sent what is no value */
};

extern struct stub_world stub;
extern uint8_t stub_pattern[STUB_PATTERN_BYTES];

void stub_begin(void);
uint64_t stub_value_bytes(uint64_t generation);
const uint8_t *stub_value(uint64_t generation);
/* One operation ends; @how: 0 as it should, else with one of the errors there are. */
void stub_store_answers(size_t which, uint32_t how);
/* Another client of the store's writes @key. */
void stub_store_changes(uint32_t key);
/* gateway_answer.c: messages that answer a read of a whole value are that value's. */
void stub_check_answer(struct pst_bytes answer);
void stub_send(uint32_t client, const void *data, size_t bytes);
void stub_pass(uint64_t ms);

/* The fuzzer's: what the door does whenever it waits. Return: false it is to end. */
bool stub_step(void);
/* The fuzzer's: what @client's socket has taken; and that the door has closed it. */
void stub_taken(uint32_t client, const uint8_t *data, size_t bytes);
void stub_closed(uint32_t client);
/* Opens a door, and runs it until stub_step() says so. */
void stub_run(void);

#endif
