/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h: frames over a socket, with deadlines. A frame is 5 bytes, the length of what follows and its type,
 * and then so many bytes; numbers are little-endian.
 *
 *     +---------------+------+-----------
 *     | u32 bytes     | type | bytes ...
 *     +---------------+------+-----------
 *
 * One thread. The first fault ends a link: all calls return it from then on.
 */
#ifndef PST_FILES_CARRY_LINK_H
#define PST_FILES_CARRY_LINK_H

#include "base/options.h"
#include "base/reader.h"
#include "files/tree/chunk.h"

enum {
    LINK_HEAD_BYTES = 5,
    LINK_FRAME_BYTES_MAX = 2 << 20,
    LINK_GREETING_BYTES_MAX = 64 << 10, /* of a frame of a peer that is not known yet */
};

enum link_type {
    LINK_CHALLENGE = 1, /* server: u16 version, 48 bytes */
    LINK_HELLO,       /* client: u16 version, u8 operation, u8 flags, 32 bytes of proof, text name, filters */
    LINK_ACCEPT,      /* server: nothing */
    LINK_ERROR,       /* either: i32 errno, text */
    LINK_ENTRIES,     /* sender: entries */
    LINK_ENTRIES_END, /* sender: u32 count */
    LINK_WANT,        /* receiver: {u32 entry, u8 how} ... */
    LINK_WANT_END,    /* receiver: nothing */
    LINK_CHUNKS,      /* sender: u32 entry, u8 flags, {u32 bytes, digest} ... */
    LINK_NEED,        /* receiver: u32 entry, a bit for each chunk; none: list it by content */
    LINK_DATA,        /* sender: {u32 entry, u64 at, u32 bytes, digest, bytes} ... */
    LINK_DONE,        /* sender: nothing */
    LINK_RESULT,      /* receiver: 4 numbers of u64 */
    LINK_ALIVE,       /* either, at any time: nothing */
    /* Of broadcasts, files/relay/relay_priv.h. */
    LINK_JOIN,    /* member, to the store: who it is, and what it joins */
    LINK_TELL,    /* member, to the store: how it stands */
    LINK_PLACE,   /* store: where a member stands */
    LINK_FOLLOW,  /* child: what it has */
    LINK_DIGESTS, /* parent: digests of pieces, 32 bytes each */
    LINK_PIECE,   /* parent: u32 piece, bytes */
    LINK_TYPES,
};

struct link {
    int fd;
    struct pst_digester *digester; /* from the greeting on */
    uint32_t frame_bytes_max;      /* of frames that are read */
    bool eager; /* reads as bytes come: the peer's silence is seen in time, at more system calls */
    bool told;  /* the error is the peer's word */
    int error;
    char *fault;  /* PST_FAULT_BYTES of the caller's */
    uint8_t *in;  /* the frame that was read last */
    uint8_t *out; /* the frame that is being made: behind room for its head */
    size_t out_bytes;
    uint64_t alive_ns;      /* when something was sent last */
    uint64_t until_ns;      /* the greeting of a peer that is not known takes no longer */
    uint64_t only_alive_ns; /* since when the peer says nothing else; 0: it does */
    uint32_t stall_ms;
};

/* The peer is not known: link_trust() says that it is, before the peer may stall once more. Return: 0 or
 * -ENOMEM; to be closed either way. */
int link_open(struct link *link, int fd, uint32_t stall_ms, char fault[PST_FAULT_BYTES]);
void link_close(struct link *link);
void link_trust(struct link *link);
/* For how long the peer may not move. */
void link_set_stall(struct link *link, uint32_t stall_ms);

/* Ends the link, and unless the peer is gone tells it. Return: the first error. */
int link_fail(struct link *link, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- making a frame ---- */

size_t link_room(const struct link *link);
void link_put_number(struct link *link, uint64_t number, size_t bytes);
void link_put(struct link *link, const void *data, size_t bytes);
/* Its length as u16, and then its bytes. */
void link_put_text(struct link *link, const char *text);
/* Room for bytes that the caller writes. */
uint8_t *link_put_space(struct link *link, size_t bytes);
/* Sends what was put, as one frame. */
int link_send(struct link *link, enum link_type type);
/* Sends the head of a frame whose first bytes were put, and of which @bytes follow by link_send_file(). */
int link_send_head(struct link *link, enum link_type type, uint32_t bytes);
/* Bytes of a file, from the kernel's cache. -ESTALE: the file is shorter; in the middle of a frame nothing
 * can be said to the peer, whose connection ends. */
int link_send_file(struct link *link, int fd, uint64_t at, uint32_t bytes);
/* Whether the peer has heard nothing for a second. */
bool link_is_due(const struct link *link);
/* A frame that says that this side still works, at most once a second. */
int link_alive(struct link *link);

/* ---- reading ---- */

/*
 * The next frame, which lives until the next call. The peer's error ends the link. Return: 0. -EPROTO: a
 * frame that is none, or of another type than @type (0: any). -ETIMEDOUT: for many times the stall the peer
 * has said nothing but that it is alive.
 */
int link_receive(struct link *link, enum link_type type, enum link_type *got, struct pst_reader *frame);

/* Sets @frame->bad if the text is longer than @cap - 1, or has a NUL. */
void link_read_text(struct pst_reader *frame, char *out, size_t cap);

/* In the number of a piece's bytes: they are a hole, and are not sent. */
#define LINK_HOLE (1u << 31)

/* Of a list of chunks. */
enum link_chunks_flags { LINK_CHUNKS_LAST = 1, LINK_CHUNKS_BY_CONTENT = 2 };

enum { LINK_CHALLENGE_BYTES = 16 + PST_DIGEST_KEY_BYTES, LINK_PROOF_BYTES = 32 };

/* Whether the peer has told of a fault, while this side sends. Return: 0 or the link's error. */
int link_look(struct link *link);

/* The proof that a peer has the token: HMAC-SHA256 over the challenge and the name. */
void link_proof(struct pst_bytes token, const uint8_t challenge[LINK_CHALLENGE_BYTES], const char *name,
                uint8_t out[LINK_PROOF_BYTES]);
/* In the same time, however much of them is equal. */
bool link_proofs_equal(const uint8_t a[LINK_PROOF_BYTES], const uint8_t b[LINK_PROOF_BYTES]);
/* Both sides take the digests' key from the challenge's end. Return: 0 or the link's error. */
int link_take_key(struct link *link, const uint8_t challenge[LINK_CHALLENGE_BYTES]);

#endif
