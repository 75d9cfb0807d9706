/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake_priv.h: frames of the bootstrap socket, who proves what with them, and who counts as the same
 * host.
 *
 * A frame, little-endian like everything in it:
 *
 *   0       4         6       8        12
 *   +-------+---------+-------+--------+---------------------+
 *   | PSTB  | version | type  | length | body: length bytes  |
 *   +-------+---------+-------+--------+---------------------+
 *
 * Which frames follow each other, and what is in each: docs/reference/protocol.md, "Bootstrap".
 *
 * mac = HMAC-SHA256(secret, 16-byte label, HELLO frame, CHALLENGE frame, what follows the mac in its frame).
 * Label and nonces keep one proof from serving as another. No secret is the empty key: the same path. Inside
 * of TLS the key is HMAC-SHA256(secret, 16-byte label, what only the two ends of this TLS connection know),
 * so that nobody can stand between two of them. An ATTACH is proved with its session's key and transcript,
 * and that mac then serves as the secret of that formula, with the connection that carries it. The layout of
 * REFUSED and of the 12 bytes above never changes, so that versions can tell each other apart. HELLO and
 * CHALLENGE tell UCX's version in their flags, and the node refuses a client whose UCX does not go with its
 * own. HELLO carries the highest version of the client, every frame after it the lower one of that and the
 * node's highest.
 */
#ifndef PST_BOOT_PRIV_H
#define PST_BOOT_PRIV_H

#include "net/handshake.h"

enum {
    BOOT_MAGIC = 0x42545350, /* "PSTB" */
    BOOT_HEAD_BYTES = 12,
    BOOT_NONCE_BYTES = 32,
    BOOT_MAC_BYTES = 32,
    BOOT_ID_BYTES = 40,
    BOOT_HELLO_BYTES = 4 + 4 + 8 + 8 + BOOT_ID_BYTES + BOOT_NONCE_BYTES,
    BOOT_CHALLENGE_BYTES = 4 + BOOT_NONCE_BYTES,
    BOOT_TRANSCRIPT_BYTES = 2 * BOOT_HEAD_BYTES + BOOT_HELLO_BYTES + BOOT_CHALLENGE_BYTES,
    BOOT_WELCOME_FIXED_BYTES = 5 * 8 + 2 * 4 + 4,
    BOOT_ATTACH_BYTES = BOOT_MAC_BYTES + 8 + 4 + 4,
    BOOT_FRAME_SMALL_MAX = 4096, /* head and body of every frame but the welcome */
    BOOT_FRAME_WELCOME_MAX = 1 << 20,

    BOOT_HANDSHAKE_MS = 5000,
    BOOT_SILENCE_MS = 10000,
    BOOT_PING_MS = 1000,
};

enum boot_type {
    BOOT_HELLO = 1,
    BOOT_CHALLENGE,
    BOOT_PROOF,
    BOOT_WELCOME,
    BOOT_ADDRESS,
    BOOT_READY,
    BOOT_PING,
    BOOT_PONG,
    BOOT_REFUSED,
    BOOT_ATTACH,
};

enum boot_refusal {
    BOOT_REFUSED_VERSION = 1,
    BOOT_REFUSED_NO_SECRET,
    BOOT_REFUSED_WRONG_SECRET,
    BOOT_REFUSED_BUSY,
    BOOT_REFUSED_FAILED,
    BOOT_REFUSED_UCX,
    BOOT_REFUSED_NO_TLS,
    BOOT_REFUSED_PLAIN,
    BOOT_REFUSED_TRANSPORT,
    BOOT_REFUSED_COUNT,
};

enum {
    BOOT_HELLO_NETWORK_ONLY = 1 << 0,
    BOOT_HELLO_HAS_SECRET = 1 << 1,
    BOOT_HELLO_ASKS_GRANT = 1 << 2, /* the welcome is to name the grant */
    BOOT_HELLO_STREAM = 1 << 3,     /* the session is to use the stream */
    BOOT_CHALLENGE_SECRET = 1 << 0, /* the server has a secret and wants it proved */
    BOOT_CHALLENGE_STREAM = 1 << 1, /* it offers the stream */
    BOOT_CHALLENGE_NO_UCX = 1 << 2, /* and that alone */
    BOOT_UCX_SHIFT = 8,             /* UCX's version in the flags of both, above the others; 0: not told */
};

#define BOOT_RANGE_BYTES_MAX (1ull << 46) /* of a node's arenas together */

_Static_assert(BOOT_HEAD_BYTES + BOOT_HELLO_BYTES <= BOOT_FRAME_SMALL_MAX, "a hello is a small frame");
_Static_assert(BOOT_HEAD_BYTES + BOOT_MAC_BYTES + PST_NET_ADDRESS_BYTES_MAX <= BOOT_FRAME_SMALL_MAX,
               "an address is a small frame");
_Static_assert(BOOT_HEAD_BYTES + BOOT_MAC_BYTES + BOOT_WELCOME_FIXED_BYTES +
                       PST_BOOT_SHARDS_MAX * (2 + PST_NET_ADDRESS_BYTES_MAX) + 1 + PST_BOOT_GRANT_BYTES_MAX <=
                   BOOT_FRAME_WELCOME_MAX,
               "the largest welcome is a frame");

struct boot_frame {
    uint16_t version;
    uint16_t type;
    uint32_t bytes;
    const uint8_t *body;
};

/* Where a process runs; two that are equal may share memory. */
struct boot_identity {
    uint32_t uid;
    uint64_t pid_ns, ipc_ns; /* 0: unknown, equal to nothing. In the upper halves: the user, the network */
    char boot_id[BOOT_ID_BYTES];
};

struct boot_hello {
    uint32_t flags;
    struct boot_identity identity;
    uint8_t nonce[BOOT_NONCE_BYTES];
};

struct boot_challenge {
    uint32_t flags;
    uint8_t nonce[BOOT_NONCE_BYTES];
};

/* frame.c: pure. */

/* Return: bytes of the whole frame at the front of @data; 0 when more has to come; -EPROTO no frame, or above
 * @max. */
int boot_frame_parse(const uint8_t *data, size_t len, size_t max, struct boot_frame *out);
/* Writes the 12 bytes of a frame. */
void boot_frame_head(uint8_t out[BOOT_HEAD_BYTES], uint16_t version, enum boot_type type,
                     uint32_t body_bytes);
void boot_hello_encode(const struct boot_hello *hello, uint8_t out[BOOT_HELLO_BYTES]);
int boot_hello_decode(const struct boot_frame *frame, struct boot_hello *out);
/* What follows the mac. */
void boot_attach_encode(uint64_t token, uint32_t shard, uint8_t out[BOOT_ATTACH_BYTES - BOOT_MAC_BYTES]);
int boot_attach_decode(const struct boot_frame *frame, uint64_t *token, uint32_t *shard);
void boot_challenge_encode(const struct boot_challenge *challenge, uint8_t out[BOOT_CHALLENGE_BYTES]);
int boot_challenge_decode(const struct boot_frame *frame, struct boot_challenge *out);
void boot_refused_encode(enum boot_refusal code, uint8_t out[4]);
/* Return: the errno of handshake.h, with *@fault in words; -EPROTO for a malformed one. */
int boot_refused_decode(const struct boot_frame *frame, const char **fault);
size_t boot_welcome_bytes(const struct pst_boot_welcome *welcome);
void boot_welcome_encode(const struct pst_boot_welcome *welcome, uint8_t *out, size_t bytes);
int boot_welcome_decode(const uint8_t *body, size_t bytes, struct pst_boot_welcome *out);

/* proof.c */

enum boot_label {
    BOOT_LABEL_CLIENT,
    BOOT_LABEL_SERVER,
    BOOT_LABEL_ADDRESS,
    BOOT_LABEL_ATTACH,
};

/* Return: 0; -ENOMEM without memory or a working OpenSSL. */
int boot_mac(struct pst_bytes secret, enum boot_label label, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
             const void *body, size_t bytes, uint8_t out[BOOT_MAC_BYTES]);
/* The key of all proofs: the secret, or, made in @bound, that for a TLS connection with this binding. Its
 * data is NULL without memory. */
struct pst_bytes boot_mac_key(struct pst_bytes secret, const uint8_t *binding, uint8_t bound[BOOT_MAC_BYTES]);
/* Makes of @mac one that holds on the TLS connection with this binding alone. Return: 0, -ENOMEM. */
int boot_mac_bind(uint8_t mac[BOOT_MAC_BYTES], const uint8_t binding[BOOT_MAC_BYTES]);
/* In constant time. Return: 0, -EACCES another mac, -ENOMEM as above. */
int boot_mac_check(struct pst_bytes secret, enum boot_label label,
                   const uint8_t transcript[BOOT_TRANSCRIPT_BYTES], const void *body, size_t bytes,
                   const uint8_t mac[BOOT_MAC_BYTES]);
/* Of the body of an ATTACH, before it is bound to a connection. Return: as boot_mac(). */
int boot_attach_mac(struct pst_bytes key, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
                    const uint8_t body[BOOT_ATTACH_BYTES], uint8_t out[BOOT_MAC_BYTES]);
/* Whether an ATTACH is of the session with this key and transcript, and was made for the TLS connection with
 * this binding; NULL: it has come in plain. In constant time. Return: as boot_mac_check(). */
int boot_attach_check(struct pst_bytes key, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
                      const uint8_t *binding, const uint8_t body[BOOT_ATTACH_BYTES]);
/*
 * Which of the secrets a client's proof is of; the first if several are the same. Tries all, whatever it
 * finds, so that the time tells nothing. @binding: as boot_mac_key(). Return: its index, -EACCES none,
 * -ENOMEM as above.
 */
int boot_mac_find(const struct pst_boot_secret *secrets, uint32_t count, const uint8_t *binding,
                  const uint8_t transcript[BOOT_TRANSCRIPT_BYTES], const uint8_t mac[BOOT_MAC_BYTES]);
/* Return: a copy of @secret that boot_secret_free() wipes, or NULL without memory. */
void *boot_secret_copy(struct pst_bytes secret);
void boot_secret_free(struct pst_bytes secret);

void boot_identity_own(struct boot_identity *out);
/* Of the process at the other end of a unix socket, by the kernel's word. */
void boot_identity_of_peer(int unix_fd, struct boot_identity *out);
/* Whether the server of a unix socket is this user or root. Return: 0, or -EACCES with *@fault in words. */
int boot_check_server(int unix_fd, const char **fault);
/* Whether these are the namespaces for PIDs and IPC that the machine began with. */
bool boot_identity_initial(const struct boot_identity *identity);
bool boot_identity_same(const struct boot_identity *a, const struct boot_identity *b);

/* address.c */

struct sockaddr_un;
void boot_address_unix(const struct pst_boot_address *address, struct sockaddr_un *out);

#endif
