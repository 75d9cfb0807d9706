/* SPDX-License-Identifier: Apache-2.0 */
/* asker.c: requests to etcd's servers; see asker.h. */
#include "master/etcd/asker.h"

#include "base/ms.h"
#include "master/etcd/messages.h"

#include <stdio.h>

enum { PASSWORD_BYTES_MAX = 256, URL_BYTES_MAX = 300 };

static int open_server(struct pst_etcd_asker *asker, const char *url, uint64_t timeout_ms,
                       size_t answer_bytes_max, char *fault)
{
    const struct pst_etcd_settings *settings = asker->settings;
    const struct pst_http_settings http = {.url = url,
                                           .ca_file = settings->etcd_ca,
                                           .certificate_file = settings->etcd_cert,
                                           .key_file = settings->etcd_key,
                                           .timeout_ms = (uint32_t)timeout_ms,
                                           .answer_bytes_max = answer_bytes_max};
    char why[PST_FAULT_BYTES];
    int r;

    if (asker->count == PST_ETCD_SERVERS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: more than %d URLs", PST_ETCD_SERVERS_MAX);
        return -EINVAL;
    }
    r = pst_http_open(&http, &asker->servers[asker->count], why);
    asker->count += r == 0;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "etcd: %.240s", why);
    return r;
}

int pst_etcd_asker_init(struct pst_etcd_asker *asker, const struct pst_etcd_settings *settings,
                        uint64_t timeout_ms, size_t answer_bytes_max, char fault[PST_FAULT_BYTES])
{
    const char *at = settings->etcd;
    int r = 0;

    pst_assert(at && timeout_ms > 0 && timeout_ms <= UINT32_MAX);
    asker->settings = settings;
    while (*at && r == 0) {
        size_t len = strcspn(at, ",");
        char url[URL_BYTES_MAX];

        snprintf(url, sizeof(url), "%.*s", (int)pst_min(len, sizeof(url)), at);
        if (len >= sizeof(url)) {
            snprintf(fault, PST_FAULT_BYTES, "etcd: '%.100s...' is too long", url);
            r = -EINVAL;
        } else {
            r = open_server(asker, url, timeout_ms, answer_bytes_max, fault);
        }
        at += len + (at[len] == ',');
    }
    if (r == 0 && asker->count == 0) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: '%.100s' has no URL", settings->etcd);
        r = -EINVAL;
    }
    return r;
}

void pst_etcd_asker_fini(struct pst_etcd_asker *asker)
{
    while (asker->count > 0)
        pst_http_close(asker->servers[--asker->count]);
}

/* A token for all servers. Return: 0, or as pst_http_ask(). */
static int make_known(struct pst_etcd_asker *asker, struct pst_http *http, char *fault)
{
    char password[PASSWORD_BYTES_MAX + 1] = "";
    struct pst_json *body, *answer = NULL;
    const char *token;
    int r = pst_secret_read(asker->settings->etcd_password_file, password, PASSWORD_BYTES_MAX, fault);

    if (r < 0)
        return r;
    password[r] = '\0'; /* the file may end with a line's end */
    body = pst_etcd_user(asker->settings->etcd_user, password);
    explicit_bzero(password, sizeof(password));
    if (!body) {
        snprintf(fault, PST_FAULT_BYTES, "etcd: no memory, or the password is no UTF-8");
        return -EINVAL;
    }
    r = pst_http_authorize(http, pst_bytes_of("")); /* a token that is taken no more is refused here, too */
    if (r == 0)
        r = pst_http_ask(http, "POST", "/v3/auth/authenticate", body, &answer, fault);
    token = pst_json_text(pst_json_get(answer, "token"));
    for (uint32_t i = 0; r == 0 && token && i < asker->count; i++)
        r = pst_http_authorize(asker->servers[i], pst_bytes_of(token));
    if (r == -ENOMEM || r == -EINVAL || (r == 0 && !token)) {
        snprintf(fault, PST_FAULT_BYTES, "%.200s: an answer without a token", pst_http_url(http));
        r = -EPROTO;
    }
    asker->known = r == 0;
    pst_json_free(answer);
    pst_json_free(body);
    return r;
}

/* Return: as pst_http_ask(). */
static int ask_server(struct pst_etcd_asker *asker, const char *target, const struct pst_json *body,
                      struct pst_json **out, char *fault)
{
    struct pst_http *http = asker->servers[asker->at];
    bool was_known = asker->known, named = asker->settings->etcd_user != NULL;
    int r = named && !was_known ? make_known(asker, http, fault) : 0;

    if (r == 0)
        r = pst_http_ask(http, "POST", target, body, out, fault);
    if ((r != 400 && r != 401 && r != 403) || !named || !was_known)
        return r;
    *out = pst_json_free(*out); /* the token may be one of before */
    asker->known = false;
    r = make_known(asker, http, fault);
    return r == 0 ? pst_http_ask(http, "POST", target, body, out, fault) : r;
}

int pst_etcd_asker_ask(struct pst_etcd_asker *asker, const char *target, struct pst_json *body,
                       struct pst_json **out, char fault[PST_FAULT_BYTES])
{
    int r = -ENOMEM;

    pst_assert(asker->count > 0 && asker->at < asker->count);
    *out = NULL;
    if (!body)
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
    for (uint32_t i = 0; body && i < asker->count && r != 0; i++) {
        r = ask_server(asker, target, body, out, fault);
        if (r == 0)
            break;
        *out = pst_json_free(*out);
        if (r > 0 && r / 100 != 5) { /* what any of them would say */
            r = -EREMOTEIO;
            break;
        }
        asker->at = (asker->at + 1) % asker->count;
        r = r > 0 ? -EREMOTEIO : r;
    }
    pst_json_free(body);
    return r;
}
