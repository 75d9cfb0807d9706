/* SPDX-License-Identifier: Apache-2.0 */
/* state.c: settings as an OpenSSL context, and their change while channels go on with what they have. */
#include "net/tls/tls_priv.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdio.h>

enum { TLS_MAGIC = 0x7e7e0048 };

#define SUITES_SHA256 "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"

struct pst_tls {
    uint32_t magic;
    struct pst_tls_settings settings; /* our copies */
    pthread_mutex_t lock;             /* of state */
    struct tls_state *state;
};

static int settings_refuse(const char *why, char *fault)
{
    snprintf(fault, PST_FAULT_BYTES, "%s", why);
    return -EINVAL;
}

static bool settings_by_secret(const struct pst_tls_settings *s)
{
    return !s->certificate && !s->key && !s->ca;
}

static int settings_check(const struct pst_tls_settings *s, char *fault)
{
    pst_assert(s->serves || s->connects);
    if (!s->certificate != !s->key)
        return settings_refuse("tls_certificate and tls_key go together", fault);
    if (settings_by_secret(s))
        return s->secret.len ? 0
                             : settings_refuse("TLS needs a certificate, an authority or a secret", fault);
    if (s->serves && !s->certificate)
        return settings_refuse("tls_ca: a node needs tls_certificate and tls_key, too", fault);
    if (s->connects && !s->ca)
        return settings_refuse("TLS by certificate needs tls_ca, which proves the node's", fault);
    if (s->name && strlen(s->name) >= sizeof(((struct tls_state *)0)->name))
        return settings_refuse("tls_name is too long", fault);
    return 0;
}

static SSL_CTX *context_new(bool by_secret)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());

    if (!ctx)
        return NULL;
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, TLS_CHAIN_BYTES_MAX);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, TLS_READ_BYTES);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) && SSL_CTX_set_max_proto_version(ctx, 0) &&
        SSL_CTX_set_num_tickets(ctx, 0) && SSL_CTX_set_max_early_data(ctx, 0) &&
        SSL_CTX_set_ciphersuites(ctx, by_secret ? SUITES_SHA256 : SUITES_SHA256 ":TLS_AES_256_GCM_SHA384"))
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static int state_fill(struct tls_state *state, const struct pst_tls_settings *s, char *fault)
{
    int r = 0;

    if (state->by_secret) {
        tls_psk_use(state->ctx);
        return tls_psk_derive(s->secret, state->psk);
    }
    if (s->certificate)
        r = tls_files_certificate(state->ctx, s->certificate, fault);
    if (r == 0 && s->key)
        r = tls_files_key(state->ctx, s->key, fault);
    if (r == 0 && s->ca)
        r = tls_files_authorities(state->ctx, s->ca, fault);
    state->asks = s->ca != NULL;
    state->insists = s->ca && !s->certificate_optional;
    if (s->name)
        snprintf(state->name, sizeof(state->name), "%s", s->name);
    return r;
}

void tls_state_unref(struct tls_state *state)
{
    if (!state || atomic_fetch_sub(&state->refs, 1) > 1)
        return;
    SSL_CTX_free(state->ctx);
    OPENSSL_cleanse(state->psk, sizeof(state->psk));
    free(state);
}

static int state_open(const struct pst_tls_settings *s, struct tls_state **out, char *fault)
{
    struct tls_state *state = calloc(1, sizeof(*state));
    int r = -ENOMEM;

    snprintf(fault, PST_FAULT_BYTES, "TLS: out of memory");
    ERR_clear_error();
    if (state) {
        atomic_init(&state->refs, 1);
        state->by_secret = settings_by_secret(s);
        state->ctx = context_new(state->by_secret);
        r = state->ctx ? state_fill(state, s, fault) : -ENOMEM;
    }
    ERR_clear_error();
    if (r < 0) {
        tls_state_unref(state);
        return r;
    }
    *out = state;
    return 0;
}

struct tls_state *tls_state_ref(struct pst_tls *tls)
{
    struct tls_state *state;

    pst_assert(tls->magic == TLS_MAGIC);
    pthread_mutex_lock(&tls->lock);
    state = tls->state;
    atomic_fetch_add(&state->refs, 1);
    pthread_mutex_unlock(&tls->lock);
    return state;
}

/* Return: false without memory. */
static bool settings_copy(struct pst_tls_settings *to, const struct pst_tls_settings *from)
{
    const char **texts[] = {&to->certificate, &to->key, &to->ca, &to->name};
    bool good = true;
    uint8_t *secret;

    *to = *from;
    for (size_t i = 0; i < pst_count_of(texts); i++) {
        bool given = *texts[i] && **texts[i];

        *texts[i] = given ? strdup(*texts[i]) : NULL;
        good &= !given || *texts[i];
    }
    secret = malloc(from->secret.len + 1);
    if (secret && from->secret.len)
        memcpy(secret, from->secret.data, from->secret.len);
    to->secret.data = secret;
    return good && secret;
}

int pst_tls_open(const struct pst_tls_settings *settings, struct pst_tls **out, char fault[PST_FAULT_BYTES])
{
    struct pst_tls *tls = calloc(1, sizeof(*tls));
    int r;

    pst_assert(settings && out && fault);
    snprintf(fault, PST_FAULT_BYTES, "TLS: out of memory");
    if (!tls)
        return -ENOMEM;
    tls->magic = TLS_MAGIC;
    pthread_mutex_init(&tls->lock, NULL);
    r = settings_copy(&tls->settings, settings) ? settings_check(&tls->settings, fault) : -ENOMEM;
    if (r == 0)
        r = state_open(&tls->settings, &tls->state, fault);
    if (r < 0) {
        pst_tls_close(tls);
        return r;
    }
    *out = tls;
    return 0;
}

int pst_tls_reload(struct pst_tls *tls, char fault[PST_FAULT_BYTES])
{
    struct tls_state *fresh, *old;
    int r;

    pst_assert(tls->magic == TLS_MAGIC);
    r = state_open(&tls->settings, &fresh, fault);
    if (r < 0)
        return r;
    pthread_mutex_lock(&tls->lock);
    old = tls->state;
    tls->state = fresh;
    pthread_mutex_unlock(&tls->lock);
    tls_state_unref(old);
    return 0;
}

struct pst_tls *pst_tls_close(struct pst_tls *tls)
{
    struct pst_tls_settings *s;

    if (!tls)
        return NULL;
    pst_assert(tls->magic == TLS_MAGIC);
    s = &tls->settings;
    tls_state_unref(tls->state);
    pthread_mutex_destroy(&tls->lock);
    free((void *)(uintptr_t)s->certificate);
    free((void *)(uintptr_t)s->key);
    free((void *)(uintptr_t)s->ca);
    free((void *)(uintptr_t)s->name);
    if (s->secret.data)
        OPENSSL_cleanse((void *)(uintptr_t)s->secret.data, s->secret.len);
    free((void *)(uintptr_t)s->secret.data);
    tls->magic = 0;
    free(tls);
    return NULL;
}

bool pst_tls_proves_nodes(const struct pst_tls *tls)
{
    pst_assert(tls->magic == TLS_MAGIC);
    return settings_by_secret(&tls->settings) || tls->settings.ca;
}
