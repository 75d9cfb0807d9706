/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: requests with JSON to one HTTP server, and the one door to libcurl. A client keeps its connection
 * from request to request, and shows its token with each. A request blocks its thread. One thread at a time
 * per client.
 *
 * Bounds: an answer answer_bytes_max, a request timeout_ms, of which connecting has 10 s at the
 * most. Redirects are not followed, and no proxy is used: either would be shown the token.
 */
#ifndef PST_HTTP_CLIENT_H
#define PST_HTTP_CLIENT_H

#include "base/options.h"
#include "http/json.h"

struct pst_http;

/* Copied by pst_http_open(). */
struct pst_http_settings {
    const char *url;        /* "http://host:port" or https, and a path in front of every target, if any */
    struct pst_bytes token; /* empty: none */
    const char *ca_file;    /* PEM file of those whom to trust with https; NULL: the system's */
    const char *certificate_file, *key_file; /* PEM files of the client's own; NULL: none */
    uint32_t timeout_ms;
    size_t answer_bytes_max; /* 0: PST_JSON_ANSWER_BYTES_MAX, which is the most */
};

/* Return: 0, or -errno with a text in @fault: -EINVAL the URL or the token cannot be, -ENOMEM. */
int pst_http_open(const struct pst_http_settings *settings, struct pst_http **out,
                  char fault[PST_FAULT_BYTES]);
/* Returns NULL. */
struct pst_http *pst_http_close(struct pst_http *http);
/* In place of the token: all that a request's Authorization says. Return: 0, -EINVAL no header takes it,
 * -ENOMEM. */
int pst_http_authorize(struct pst_http *http, struct pst_bytes text);
/* Without slashes at its end. Lives as the client. */
const char *pst_http_url(const struct pst_http *http);

/**
 * pst_http_ask() - send a request and wait for its answer
 * @target: path and query, quoted; borrowed
 * @body: an object that is sent as JSON, or NULL for none; borrowed
 * @out: the answer, an object that the caller frees; NULL: it is of no interest
 * Return: 0 with a status of 2xx. Else a text in @fault names the URL and what is wrong, and the result is
 * the status, with *@out set to the answer if that is an object and else to NULL, or -errno: -EHOSTUNREACH
 * no such host, -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -EPROTO no HTTP, no JSON object, or a certificate
 * that is not trusted, -EFBIG the answer is too long, -ENOMEM.
 */
int pst_http_ask(struct pst_http *http, const char *method, const char *target, const struct pst_json *body,
                 struct pst_json **out, char fault[PST_FAULT_BYTES]);

#endif
