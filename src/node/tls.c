/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.c: what a node's settings say of TLS. With TLS a plain client has to be on the node's own host, and has
 * to prove the secret where others need a certificate: nobody gets around that over the loopback device.
 */
#include "net/tls/tls.h"

#include "node/node_priv.h"

#include <stdio.h>

static bool tls_asked_for(const struct pst_node_settings *s)
{
    return s->tls || s->tls_ca || s->tls_required; /* a certificate alone may be another port's */
}

static bool asks_secret(const struct pst_node_settings *s)
{
    return s->secret_file || s->grants;
}

static int tls_refuse(const char *why, char *fault)
{
    snprintf(fault, PST_FAULT_BYTES, "%s", why);
    return -EINVAL;
}

static int tls_check(const struct pst_node_settings *s, char *fault)
{
    if (!tls_asked_for(s) && (s->insecure || s->tls_optional || s->tls_name))
        return tls_refuse("insecure, tls_optional and tls_name need TLS: tls, or tls_certificate and tls_key",
                          fault);
    if (s->insecure && s->tls_required)
        return tls_refuse("insecure and tls_required exclude each other", fault);
    if ((s->insecure || s->tls_optional) && !asks_secret(s))
        return tls_refuse(
            "insecure and tls_optional need secret_file or grants: nothing else would prove a client", fault);
    return 0;
}

int pst_node_open_tls(struct pst_node *node, const struct pst_node_settings *s, char *fault)
{
    const struct pst_tls_settings settings = {
        .certificate = s->tls_certificate,
        .key = s->tls_key,
        .ca = s->tls_ca,
        .name = s->tls_name,
        .secret = {node->secret, node->secret_bytes},
        .serves = true,
        .certificate_optional = s->tls_optional,
    };
    int r = tls_check(s, fault);

    pst_assert(!node->tls);
    return r < 0 || !tls_asked_for(s) ? r : pst_tls_open(&settings, &node->tls, fault);
}

enum pst_boot_plain pst_node_plain(const struct pst_node_settings *s)
{
    pst_assert(!s->insecure || asks_secret(s));
    if (s->insecure)
        return PST_BOOT_PLAIN_ANYBODY;
    if (s->tls_required || (s->tls_ca && !asks_secret(s)))
        return PST_BOOT_PLAIN_NOBODY;
    return PST_BOOT_PLAIN_LOOPBACK;
}

struct pst_tls *pst_node_tls(const struct pst_node *node)
{
    return node->tls;
}

void pst_node_reload_tls(struct pst_node *node)
{
    char fault[PST_FAULT_BYTES];

    if (!node->tls)
        return;
    if (pst_tls_reload(node->tls, fault) == 0)
        pst_node_log(node, "TLS: certificates were read again");
    else
        pst_node_log(node, "TLS: %s; the certificates of before stay", fault);
}
