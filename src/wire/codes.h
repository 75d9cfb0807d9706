/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes.h: the operations. One row has a code's number, its word for people and its traits; every table by
 * code comes from here, and nobody asks for a range of codes. Public codes are those of penstock.h.
 */
#ifndef PST_WIRE_CODES_H
#define PST_WIRE_CODES_H

#include "base/base.h"

enum pst_code_trait {
    /* Where it may come from. */
    PST_CODE_PUBLIC = 1 << 0, /* a caller of the library */
    PST_CODE_PLAIN = 1 << 1,  /* a request; the others are in commits only */
    PST_CODE_MEMBER = 1 << 2, /* a commit */
    /* What it has. */
    PST_CODE_KEY = 1 << 3,   /* a key, always */
    PST_CODE_START = 1 << 4, /* a key to begin at, or a prefix: may be empty */
    PST_CODE_ATTRS = 1 << 5, /* attributes, a range's end, or a question */
    PST_CODE_VALUE = 1 << 6, /* carries a value */
    PST_CODE_HANDLE =
        1 << 7, /* the handle of a reservation, view or watch; a role's: a version that is known */
    PST_CODE_OFFSET = 1 << 8, /* an offset, always */
    /* What it does. */
    PST_CODE_READS = 1 << 9,        /* tells of a value, which any node that has it can */
    PST_CODE_EVERYWHERE = 1 << 10,  /* in a pool each node that has the key does it */
    PST_CODE_WRITES = 1 << 11,      /* done or not: unknown when the session ends before the answer */
    PST_CODE_RETURNS = 1 << 12,     /* gives back what the session holds: done when the session ends */
    PST_CODE_ANSWERS = 1 << 13,     /* its answer is data, for which `bytes` is the room */
    PST_CODE_LONG = 1 << 14,        /* the more bytes, the more time it has */
    PST_CODE_RESERVATION = 1 << 15, /* is on a reservation */
    /* How it is carried out. */
    PST_CODE_MAY_WAIT = 1 << 16, /* with the WAIT flag it may be answered late, and is not batched */
    PST_CODE_WAITS = 1 << 17,    /* without it, too */
    PST_CODE_SERVED = 1 << 18,   /* the node's role may refuse to serve the key */
    PST_CODE_LOCKED = 1 << 19,   /* busy while a commit has the key locked */
    PST_CODE_FETCHES = 1 << 20,  /* a value that is on the SSD is fetched before */
};

/* What all of a node's role have: its questions are told apart by pool.h. */
#define PST_CODE_ROLE                                                                                        \
    (PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ATTRS | PST_CODE_HANDLE | PST_CODE_OFFSET | PST_CODE_ANSWERS)

/* Those of penstock.h. */
#define PST_PUBLIC_CODES(X) /* code number word traits */                                                    \
    X(PUT, 1, "put",                                                                                         \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_MEMBER | PST_CODE_KEY | PST_CODE_ATTRS | PST_CODE_VALUE |  \
          PST_CODE_WRITES | PST_CODE_LONG | PST_CODE_SERVED)                                                 \
    X(GET, 2, "get",                                                                                         \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_READS | PST_CODE_LONG | PST_CODE_MAY_WAIT | \
          PST_CODE_SERVED | PST_CODE_LOCKED | PST_CODE_FETCHES)                                              \
    X(STAT_KEY, 3, "stat",                                                                                   \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_READS | PST_CODE_SERVED | PST_CODE_LOCKED)  \
    X(DELETE, 4, "delete",                                                                                   \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_MEMBER | PST_CODE_KEY | PST_CODE_EVERYWHERE |              \
          PST_CODE_WRITES | PST_CODE_SERVED)                                                                 \
    X(PIN, 5, "pin",                                                                                         \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_EVERYWHERE | PST_CODE_WRITES |              \
          PST_CODE_SERVED | PST_CODE_LOCKED)                                                                 \
    X(UNPIN, 6, "unpin",                                                                                     \
      PST_CODE_PUBLIC | PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_EVERYWHERE | PST_CODE_WRITES |              \
          PST_CODE_SERVED | PST_CODE_LOCKED)                                                                 \
    X(CHECK, 7, "check", PST_CODE_MEMBER | PST_CODE_KEY)                                                     \
    /* bytes: of the value, UINT64_MAX: it grows. Data: struct pst_wire_reservation, location. */            \
    X(RESERVE, 22, "reserve",                                                                                \
      PST_CODE_PUBLIC | PST_CODE_RESERVATION | PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_ATTRS |              \
          PST_CODE_SERVED)                                                                                   \
    X(WRITE_AT, 23, "write",                                                                                 \
      PST_CODE_PUBLIC | PST_CODE_RESERVATION | PST_CODE_HANDLE | PST_CODE_OFFSET | PST_CODE_PLAIN |          \
          PST_CODE_KEY | PST_CODE_VALUE | PST_CODE_LONG | PST_CODE_SERVED)                                   \
    /* attrs: location. */                                                                                   \
    X(RESERVATION_COMMIT, 24, "reservation-commit",                                                          \
      PST_CODE_PUBLIC | PST_CODE_RESERVATION | PST_CODE_HANDLE | PST_CODE_PLAIN | PST_CODE_KEY |             \
          PST_CODE_ATTRS | PST_CODE_WRITES | PST_CODE_SERVED)                                                \
    X(RESERVATION_ABORT, 25, "abort",                                                                        \
      PST_CODE_PUBLIC | PST_CODE_RESERVATION | PST_CODE_HANDLE | PST_CODE_PLAIN | PST_CODE_KEY |             \
          PST_CODE_RETURNS)

/* The library's own. */
#define PST_OWN_CODES(X)                                                                                     \
    /* From key to attrs (the end); bytes: room. Data: entries. */                                           \
    X(LIST, 16, "list", PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ATTRS | PST_CODE_ANSWERS)                 \
    /* Deletes from key to attrs. Data: deleted, spared, resume key. */                                      \
    X(SWEEP, 17, "sweep",                                                                                    \
      PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ATTRS | PST_CODE_WRITES | PST_CODE_ANSWERS)                 \
    X(STAT, 18, "figures", PST_CODE_PLAIN | PST_CODE_ANSWERS) /* data: u64 figures */                        \
    X(PING, 19, "ping", PST_CODE_PLAIN | PST_CODE_ANSWERS)                                                   \
    /* Data: struct pst_wire_view, then runs; result.generation is the value's. What it pins goes with the   \
     * session, so it writes nothing. */                                                                     \
    X(VIEW, 20, "view",                                                                                      \
      PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_ANSWERS | PST_CODE_SERVED | PST_CODE_LOCKED |                 \
          PST_CODE_FETCHES)                                                                                  \
    X(RELEASE, 21, "release",                                                                                \
      PST_CODE_HANDLE | PST_CODE_PLAIN | PST_CODE_START | PST_CODE_RETURNS | PST_CODE_ANSWERS)               \
    X(COMMIT, 26, "commit", PST_CODE_PLAIN | PST_CODE_WRITES)                                                \
    X(FLUSH, 27, "flush", PST_CODE_PLAIN | PST_CODE_ANSWERS) /* until all of the shard is durable */         \
    /* attrs: struct pst_wire_copy and what the value has; the value as of a put. */                         \
    X(COPY, 28, "copy",                                                                                      \
      PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_ATTRS | PST_CODE_VALUE | PST_CODE_WRITES | PST_CODE_LONG)     \
    /* The key's value is sent to who joins its partition; attrs: struct pst_wire_target, or none. */        \
    X(COPY_SEND, 29, "send",                                                                                 \
      PST_CODE_PLAIN | PST_CODE_KEY | PST_CODE_ATTRS | PST_CODE_ANSWERS | PST_CODE_FETCHES)                  \
    /* From key on; attrs: struct pst_wire_cleared. Data as of SWEEP. */                                     \
    X(COPY_CLEAR, 30, "clear-copies", PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ATTRS | PST_CODE_ANSWERS)   \
    /* Of the prefix in key; result.generation is its handle. */                                             \
    X(WATCH_OPEN, 32, "watch", PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ANSWERS)                           \
    /* bytes: room. Data: changes. */                                                                        \
    X(WATCH_NEXT, 33, "events",                                                                              \
      PST_CODE_HANDLE | PST_CODE_PLAIN | PST_CODE_START | PST_CODE_ANSWERS | PST_CODE_WAITS)                 \
    X(WATCH_CLOSE, 34, "unwatch",                                                                            \
      PST_CODE_HANDLE | PST_CODE_PLAIN | PST_CODE_START | PST_CODE_RETURNS | PST_CODE_ANSWERS)

#define PST_WIRE_CODES(X) PST_PUBLIC_CODES(X) PST_OWN_CODES(X)

enum pst_wire_code {
#define X(code, number, word, traits) PST_WIRE_##code = number,
    PST_WIRE_CODES(X)
#undef X
    /* Of a node's role beside its store, in attrs; bytes: room. Data: the answer. See pool.h. */
    PST_WIRE_ROLE_FIRST = 64,
    PST_WIRE_ROLE_LAST = 95,
};

extern const uint32_t pst_code_traits_of[UINT8_MAX + 1]; /* 0: no code */

static inline uint32_t pst_code_traits(uint8_t code)
{
    return pst_code_traits_of[code];
}

static inline bool pst_code_has(uint8_t code, enum pst_code_trait trait)
{
    return pst_code_traits_of[code] & trait;
}

static inline bool pst_code_of_role(uint8_t code)
{
    return code >= PST_WIRE_ROLE_FIRST && code <= PST_WIRE_ROLE_LAST;
}

/* Its word for people; NULL: no code. */
const char *pst_code_word(uint8_t code);

#endif
