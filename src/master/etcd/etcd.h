/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd.h: the pool map in an etcd that masters share: a keeper (keeper.h). Below the prefix it has three
 * keys:
 *
 *   map      the pool map's bytes
 *   leader   the address of the master that has taken it; with a lease of that master's, so it goes if that
 *            ends
 *
 *   grace    for how many ms a master that lost it may speak on; the most of what any master was told
 *
 * A pool map is put if `leader` is the one that this master made, and `map` the one that it knows: a master
 * that does not know yet that it leads no more changes nothing. It believes in its lease for a fifth less
 * than etcd does, from the sending of the renewal on.
 */
#ifndef PST_ETCD_H
#define PST_ETCD_H

#include "master/keeper.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_ETCD_OPTIONS(X)                                                                                  \
    X(STRING, etcd, "", 0, 0, "URL[,URL]",                                                                   \
      "etcd that has the pool map in place of a file, and says which of several masters leads")              \
    X(STRING, etcd_prefix, "penstock", 0, 0, "PREFIX", "of the pool's keys in etcd: each pool has its own")  \
    X(STRING, etcd_ca, "", 0, 0, "FILE", "PEM file of those whom to trust as etcd; the system's if not set") \
    X(STRING, etcd_cert, "", 0, 0, "FILE", "PEM file of the certificate that the master shows to etcd")      \
    X(STRING, etcd_key, "", 0, 0, "FILE", "PEM file of its private key")                                     \
    X(STRING, etcd_user, "", 0, 0, "NAME", "the master's name in etcd, if etcd wants one")                   \
    X(STRING, etcd_password_file, "", 0, 0, "FILE", "that user's password")                                  \
    X(NUMBER, etcd_lease_ms, "5000", 2000, 600000, "ms",                                                     \
      "so long after a master's last word to etcd another may lead, in whole seconds")                       \
    X(NUMBER, etcd_grace_ms, "30000", 0, 86400000, "ms",                                                     \
      "for so long behind that nodes serve on if the master hears nothing from etcd, and a new one moves "   \
      "nothing")

struct pst_etcd_settings {
    PST_ETCD_OPTIONS(PST_OPTION_MEMBER)
};

/*
 * Reaches for nothing yet, but reads the files. @settings: borrowed as long as the keeper is there; @address:
 * the master's, for those who ask another one. Return: 0, -errno with the reason in @fault.
 */
int pst_etcd_open(const struct pst_etcd_settings *settings, const char *address, struct pst_keeper **out,
                  char fault[PST_FAULT_BYTES]);

#endif
