/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_rig.h: what the tests of TLS share: a folder of certificates of every kind (tests/lib/certificates says
 * which), and both sides of a connection in the test's thread, which take turns.
 */
#ifndef PST_TEST_TLS_RIG_H
#define PST_TEST_TLS_RIG_H

#include "lib/cm.h"

#include "net/tls/tls_priv.h"

/* One side of a connection: what it is given. Certificates by their names; NULL: none. */
struct tls_side {
    const char *certificate, *ca, *secret, *name;
    bool optional;
};

struct tls_pair {
    struct pst_tls *tls[2];         /* client, server */
    struct stream_channel *ends[2]; /* the same */
    int result[2];                  /* of the start; then of the first read, at the client */
    enum pst_tls_fault fault[2];
    const char *text[2];
};

int tls_make_certificates(void **state);
int tls_remove_certificates(void **state);
/* "FOLDER/NAME", in one of a few buffers that take turns. */
const char *tls_path(const char *name, const char *ending);
/* Puts one file in the place of another, as a rotation does. */
void tls_copy(const char *from, const char *to, const char *ending);
int tls_side_open(const struct tls_side *side, bool serves, struct pst_tls **out, char *fault);
/* A pair of sockets that do not block. */
void tls_sockets(int fds[2]);
/* Opens both sides, and channels over the sockets; a client asks for @host. */
void tls_pair_open(struct tls_pair *pair, const struct tls_side *client, const struct tls_side *server,
                   const char *host, const int fds[2]);
/* Lets both take their turns until they stand, or fail; @between is called after each. */
void tls_pair_start(struct tls_pair *pair, void (*between)(void *ctx), void *ctx);
void tls_pair_close(struct tls_pair *pair);
/* All of that. */
void tls_pair_meet(struct tls_pair *pair, const struct tls_side *client, const struct tls_side *server,
                   const char *host);
/* Moves bytes from one end to the other, as far as it goes, and compares. */
void tls_pair_talk(struct tls_pair *pair, int from, size_t bytes, uint64_t seed);

#endif
