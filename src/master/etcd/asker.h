/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asker.h: one thread's way to an etcd: asks one of its servers, and another one if that fails. With a user
 * it has a token, which it gets when there is none, or one that is taken no more.
 */
#ifndef PST_ETCD_ASKER_H
#define PST_ETCD_ASKER_H

#include "http/client.h"
#include "master/etcd/etcd.h"

enum { PST_ETCD_SERVERS_MAX = 16 };

/* Zero-initialise. */
struct pst_etcd_asker {
    const struct pst_etcd_settings *settings;
    struct pst_http *servers[PST_ETCD_SERVERS_MAX];
    uint32_t count, at; /* at: the one that answered last */
    bool known;         /* with a token */
};

/* @settings: borrowed. Return: 0, -errno with the reason in @fault. */
int pst_etcd_asker_init(struct pst_etcd_asker *asker, const struct pst_etcd_settings *settings,
                        uint64_t timeout_ms, size_t answer_bytes_max, char fault[PST_FAULT_BYTES]);
void pst_etcd_asker_fini(struct pst_etcd_asker *asker);
/*
 * Each server at the most once; takes @body over, NULL is -ENOMEM. Return: 0, -errno with the reason in
 * @fault: what was asked for may still happen.
 */
int pst_etcd_asker_ask(struct pst_etcd_asker *asker, const char *target, struct pst_json *body,
                       struct pst_json **out, char fault[PST_FAULT_BYTES]);

#endif
