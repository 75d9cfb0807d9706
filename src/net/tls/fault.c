/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: what OpenSSL's errors, verification results and alerts mean to whoever has to mend it. */
#include "net/tls/tls_priv.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>

struct meaning {
    int code;
    enum pst_tls_fault fault;
    int error;
    const char *text;
};

/* Of a certificate that the other side sent: X509_V_ERR_. The text follows "certificate". */
static const struct meaning of_certificate[] = {
    {X509_V_ERR_CERT_HAS_EXPIRED, PST_TLS_FAULT_EXPIRED, -EACCES, "has expired"},
    {X509_V_ERR_CERT_NOT_YET_VALID, PST_TLS_FAULT_EXPIRED, -EACCES, "is not yet valid"},
    {X509_V_ERR_HOSTNAME_MISMATCH, PST_TLS_FAULT_CERTIFICATE, -EACCES, "is of another host name"},
    {X509_V_ERR_IP_ADDRESS_MISMATCH, PST_TLS_FAULT_CERTIFICATE, -EACCES, "is of another address"},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, PST_TLS_FAULT_CERTIFICATE, -EACCES,
     "has an unknown issuer"},
    {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, PST_TLS_FAULT_CERTIFICATE, -EACCES, "has an unknown issuer"},
    {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, PST_TLS_FAULT_CERTIFICATE, -EACCES, "has an unknown issuer"},
    {X509_V_ERR_INVALID_PURPOSE, PST_TLS_FAULT_CERTIFICATE, -EACCES, "is for another purpose"},
};

/* What we found wrong ourselves: SSL_R_. */
static const struct meaning of_reason[] = {
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, PST_TLS_FAULT_CERTIFICATE, -EACCES, "no certificate"},
    {SSL_R_BINDER_DOES_NOT_VERIFY, PST_TLS_FAULT_SECRET, -EACCES, "wrong secret"},
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, PST_TLS_FAULT_REPLAYED, -EPROTO,
     "a TLS record that was replayed or changed"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, PST_TLS_FAULT_PROTOCOL, -EPROTO,
     "TLS by certificate, and the node has the secret alone"},
    {SSL_R_NO_SHARED_CIPHER, PST_TLS_FAULT_PROTOCOL, -EPROTO, "no cipher in common"},
    {SSL_R_UNSUPPORTED_PROTOCOL, PST_TLS_FAULT_PROTOCOL, -EPROTONOSUPPORT, "not TLS 1.3"},
    {SSL_R_UNKNOWN_PROTOCOL, PST_TLS_FAULT_PROTOCOL, -EPROTONOSUPPORT, "not TLS 1.3"},
    {SSL_R_WRONG_SSL_VERSION, PST_TLS_FAULT_PROTOCOL, -EPROTONOSUPPORT, "not TLS 1.3"},
    {SSL_R_WRONG_VERSION_NUMBER, PST_TLS_FAULT_PROTOCOL, -EPROTO, "no TLS"},
    {SSL_R_HTTP_REQUEST, PST_TLS_FAULT_PROTOCOL, -EPROTO, "no TLS"},
};

/* What the other side told us by an alert. */
static const struct meaning of_alert[] = {
    {SSL_AD_BAD_RECORD_MAC, PST_TLS_FAULT_REPLAYED, -EPROTO, "a TLS record that was replayed or changed"},
    {SSL_AD_HANDSHAKE_FAILURE, PST_TLS_FAULT_PROTOCOL, -EPROTO,
     "nothing in common: certificates here, the secret there?"},
    {SSL_AD_PROTOCOL_VERSION, PST_TLS_FAULT_PROTOCOL, -EPROTONOSUPPORT, "not TLS 1.3"},
    {SSL_AD_CERTIFICATE_EXPIRED, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "an expired certificate"},
    {SSL_AD_UNKNOWN_CA, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "a certificate with an unknown issuer"},
    {SSL_AD_CERTIFICATE_REQUIRED, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "no certificate"},
    {SSL_AD_BAD_CERTIFICATE, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "a wrong certificate"},
    {SSL_AD_UNSUPPORTED_CERTIFICATE, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "a certificate for another purpose"},
    {SSL_AD_CERTIFICATE_UNKNOWN, PST_TLS_FAULT_TURNED_DOWN, -EACCES, "a wrong certificate"},
};

static const struct meaning *meaning_find(const struct meaning *table, size_t count, int code)
{
    pst_assert(count > 0);
    for (size_t i = 0; i < count; i++)
        if (table[i].code == code)
            return &table[i];
    return NULL;
}

static int fault_set(struct tls_channel *ch, const struct meaning *meaning, const char *before)
{
    ch->fault = meaning->fault;
    snprintf(ch->text, sizeof(ch->text), "%s%s", before, meaning->text);
    pst_assert(meaning->error < 0);
    pst_assert(ch->fault != PST_TLS_FAULT_NONE);
    return meaning->error;
}

static int fault_of_certificate(struct tls_channel *ch, int result)
{
    const struct meaning *known = meaning_find(of_certificate, pst_count_of(of_certificate), result);
    const struct meaning other = {result, PST_TLS_FAULT_CERTIFICATE, -EACCES,
                                  X509_verify_cert_error_string(result)};
    const struct meaning unasked = {result, PST_TLS_FAULT_CERTIFICATE, -EACCES,
                                    "the node has a certificate: TLS by the secret alone does not do"};

    pst_assert(result != X509_V_OK);
    if (ch->state->by_secret)
        return fault_set(ch, &unasked, "");
    if (!known)
        return fault_set(ch, &other, ch->client ? "the node's certificate: " : "its certificate: ");
    return fault_set(ch, known, ch->client ? "the node's certificate " : "its certificate ");
}

static int fault_of_alert(struct tls_channel *ch, int alert)
{
    const struct meaning *known = meaning_find(of_alert, pst_count_of(of_alert), alert);
    const struct meaning secret = {alert, PST_TLS_FAULT_SECRET, -EACCES, "wrong secret"};
    const struct meaning other = {alert, PST_TLS_FAULT_PROTOCOL, -EPROTO, SSL_alert_desc_string_long(alert)};

    /* So OpenSSL says that the proof of a PSK is wrong. */
    if (ch->client && ch->state->by_secret && alert == SSL_AD_ILLEGAL_PARAMETER)
        return fault_set(ch, &secret, "");
    if (!known)
        return fault_set(ch, &other, "TLS alert: ");
    if (known->fault != PST_TLS_FAULT_TURNED_DOWN)
        return fault_set(ch, known, "");
    return fault_set(ch, known, ch->client ? "the node refuses this client: " : "it refuses the node: ");
}

/* The socket's end or error, in the handshake or after it. */
static int fault_of_socket(struct tls_channel *ch, int error)
{
    const struct meaning long_one = {0, PST_TLS_FAULT_PROTOCOL, -EPROTO, "too long a TLS handshake"};
    const struct meaning rekeys = {0, PST_TLS_FAULT_PROTOCOL, -EPROTO, "changes of keys, and no data"};
    const struct meaning silent = {0, PST_TLS_FAULT_ENDED, -EPROTO, "the connection ended before any TLS"};
    const struct meaning cut = {0, PST_TLS_FAULT_ENDED, -ECONNRESET, "the connection ended"};
    const struct meaning plain = {0, PST_TLS_FAULT_PROTOCOL, -EPROTO, "no TLS"};

    if (ch->plain)
        return fault_set(ch, &plain, "");
    if (!ch->started && ch->handshake_bytes == TLS_HANDSHAKE_BYTES_MAX)
        return fault_set(ch, &long_one, "");
    if (ch->rekeys > TLS_REKEYS_MAX)
        return fault_set(ch, &rekeys, "");
    if (!ch->started && ch->handshake_bytes == 0)
        return fault_set(ch, &silent, "");
    return ch->ended || error == 0 ? fault_set(ch, &cut, "")
                                   : fault_set(ch, &(struct meaning){0, cut.fault, -error, cut.text}, "");
}

int tls_fault_read(struct tls_channel *ch)
{
    int error = errno;
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    const struct meaning *known = meaning_find(of_reason, pst_count_of(of_reason), reason);
    const struct meaning other = {0, PST_TLS_FAULT_PROTOCOL, -EPROTO, ERR_reason_error_string(code)};
    int r;

    if (reason > SSL_AD_REASON_OFFSET)
        r = fault_of_alert(ch, reason - SSL_AD_REASON_OFFSET);
    else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        r = fault_of_certificate(ch, (int)SSL_get_verify_result(ch->ssl));
    else if (known)
        r = fault_set(ch, known, "");
    else if (reason == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING || !other.text)
        r = fault_of_socket(ch, error);
    else
        r = fault_set(ch, &other, "TLS: ");
    ERR_clear_error();
    return r;
}
