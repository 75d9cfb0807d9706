/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: the door to libcurl. One easy handle a client; what it is told once stays for every request. */
#include "http/client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>

enum { CONNECT_MS_MAX = 10000, URL_BYTES_MAX = 2000 };

struct pst_http {
    CURL *curl;
    struct curl_slist *headers;
    char *url;
    char error[CURL_ERROR_SIZE];
    /* Of the request underway. */
    char *answer;
    size_t answer_bytes, answer_room, answer_bytes_max;
    bool too_long;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_begin(void)
{
    pst_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

/* ---- opening ---- */

/* A line break would end the header, and begin another. */
static bool is_header_text(struct pst_bytes text)
{
    const unsigned char *at = text.data;

    for (size_t i = 0; i < text.len; i++)
        if (at[i] <= ' ' || at[i] >= 0x7f)
            return false;
    return true;
}

static int add_header(struct pst_http *http, const char *line)
{
    struct curl_slist *longer = curl_slist_append(http->headers, line);

    http->headers = longer ? longer : http->headers;
    return longer ? 0 : -ENOMEM;
}

static int set_headers(struct pst_http *http, const char *scheme, struct pst_bytes token)
{
    pst_cleanup_free char *line = NULL;
    int r = add_header(http, "Content-Type: application/json");

    if (r == 0)
        r = add_header(http, "Expect:"); /* no pause in front of a body */
    if (r < 0 || token.len == 0)
        return r;
    if (asprintf(&line, "Authorization: %s%.*s", scheme, (int)token.len, (const char *)token.data) < 0)
        return -ENOMEM;
    r = add_header(http, line);
    explicit_bzero(line, strlen(line));
    return r;
}

static bool set_url(struct pst_http *http, const char *url)
{
    size_t bytes = strlen(url);

    pst_assert(!http->url);
    while (bytes > 0 && url[bytes - 1] == '/')
        bytes--;
    http->url = strndup(url, bytes);
    return http->url != NULL;
}

static size_t take_answer(char *data, size_t size, size_t count, void *arg)
{
    struct pst_http *http = arg;
    size_t bytes = size * count, wanted = http->answer_bytes + bytes;

    if (wanted > http->answer_bytes_max) {
        http->too_long = true;
        return 0;
    }
    if (wanted > http->answer_room) {
        size_t room = pst_max(2 * http->answer_room, pst_max(wanted, 4096));
        char *larger = realloc(http->answer, room);

        if (!larger)
            return 0;
        http->answer = larger;
        http->answer_room = room;
    }
    pst_assert(wanted <= http->answer_room);
    memcpy(http->answer + http->answer_bytes, data, bytes);
    http->answer_bytes = wanted;
    return bytes;
}

static void set_curl(struct pst_http *http, const struct pst_http_settings *settings)
{
    CURL *curl = http->curl;

    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->error);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, http->headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* a ".." within is the server's to judge */
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)settings->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)pst_min(settings->timeout_ms, CONNECT_MS_MAX));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, http);
    if (settings->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, settings->ca_file);
    if (settings->certificate_file)
        curl_easy_setopt(curl, CURLOPT_SSLCERT, settings->certificate_file);
    if (settings->key_file)
        curl_easy_setopt(curl, CURLOPT_SSLKEY, settings->key_file);
}

/* Without what would be sent as a query. */
static bool is_url(const char *text)
{
    CURLU *url = curl_url();
    bool good = url && (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0) &&
                strlen(text) <= URL_BYTES_MAX && !strpbrk(text, "?#") &&
                curl_url_set(url, CURLUPART_URL, text, 0) == CURLUE_OK;

    curl_url_cleanup(url);
    return good;
}

int pst_http_open(const struct pst_http_settings *settings, struct pst_http **out,
                  char fault[PST_FAULT_BYTES])
{
    struct pst_http *http;
    const char *url = settings->url;

    pst_assert(url);
    pst_assert(settings->timeout_ms > 0);
    pst_assert(settings->answer_bytes_max <= PST_JSON_ANSWER_BYTES_MAX);
    if (!is_url(url)) {
        snprintf(fault, PST_FAULT_BYTES, "'%.100s' is no http:// or https:// URL", url);
        return -EINVAL;
    }
    if (!is_header_text(settings->token)) {
        snprintf(fault, PST_FAULT_BYTES, "the token has a byte that no header takes");
        return -EINVAL;
    }
    pthread_once(&curl_once, curl_begin);
    http = calloc(1, sizeof(*http));
    if (http)
        http->curl = curl_easy_init();
    if (!http || !http->curl || !set_url(http, url) || set_headers(http, "Bearer ", settings->token) < 0) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        pst_http_close(http);
        return -ENOMEM;
    }
    http->answer_bytes_max =
        settings->answer_bytes_max ? settings->answer_bytes_max : PST_JSON_ANSWER_BYTES_MAX;
    set_curl(http, settings);
    *out = http;
    return 0;
}

struct pst_http *pst_http_close(struct pst_http *http)
{
    if (!http)
        return NULL;
    curl_easy_cleanup(http->curl);
    curl_slist_free_all(http->headers);
    free(http->url);
    free(http->answer);
    free(http);
    return NULL;
}

int pst_http_authorize(struct pst_http *http, struct pst_bytes text)
{
    struct curl_slist *before = http->headers;
    int r;

    if (!is_header_text(text))
        return -EINVAL;
    http->headers = NULL;
    r = set_headers(http, "", text);
    if (r < 0) {
        curl_slist_free_all(http->headers);
        http->headers = before;
        return r;
    }
    curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers);
    curl_slist_free_all(before);
    return 0;
}

const char *pst_http_url(const struct pst_http *http)
{
    return http->url;
}

/* ---- asking ---- */

static int error_of(const struct pst_http *http, CURLcode code)
{
    pst_assert(code != CURLE_OK);
    switch (code) {
    case CURLE_WRITE_ERROR:
        return http->too_long ? -EFBIG : -ENOMEM;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_URL_MALFORMAT:
        return -EINVAL;
    case CURLE_COULDNT_RESOLVE_HOST:
        return -EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        return -ECONNREFUSED;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        return -ECONNRESET;
    default:
        return -EPROTO;
    }
}

/* Sends it. Return: the status, or -errno with a text in @fault. */
static int perform(struct pst_http *http, const char *method, const char *url, const char *body,
                   char fault[PST_FAULT_BYTES])
{
    CURL *curl = http->curl;
    long status = 0;
    CURLcode code;

    http->answer_bytes = 0;
    http->too_long = false;
    http->error[0] = 0;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L); /* forgets the body of the last request */
    if (body || strcmp(method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body ? body : ""));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body ? body : "");
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    code = curl_easy_perform(curl);
    if (code != CURLE_OK) {
        const char *why = http->too_long ? "the answer is too long" : http->error;

        snprintf(fault, PST_FAULT_BYTES, "%.120s: %.120s", url, *why ? why : curl_easy_strerror(code));
        return error_of(http, code);
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

/* Return: the answer, or NULL if it is no object. */
static struct pst_json *parse_answer(const struct pst_http *http)
{
    struct pst_json *json = NULL;
    const char *why = NULL;

    if (pst_json_parse_answer((struct pst_bytes){http->answer, http->answer_bytes}, &json, &why) < 0)
        return NULL;
    return pst_json_is_object(json) ? json : pst_json_free(json);
}

/* What the server says of its refusal. */
static const char *detail_of(const struct pst_json *json)
{
    const struct pst_json *detail = pst_json_get(json, "detail");
    const char *text = pst_json_text(detail);

    if (!text)
        text = pst_json_text(pst_json_get(detail, "error"));
    if (!text)
        text = pst_json_text(pst_json_get(json, "message")); /* etcd's */
    return text ? text : "refused";
}

int pst_http_ask(struct pst_http *http, const char *method, const char *target, const struct pst_json *body,
                 struct pst_json **out, char fault[PST_FAULT_BYTES])
{
    pst_cleanup_free char *url = NULL, *text = NULL;
    struct pst_json *json;
    int status;

    pst_assert(*target == '/');
    text = body ? pst_json_print(body) : NULL;
    if (asprintf(&url, "%s%s", http->url, target) < 0 || (body && !text)) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    status = perform(http, method, url, text, fault);
    if (status < 0)
        return status;
    json = parse_answer(http);
    if (status / 100 != 2) {
        snprintf(fault, PST_FAULT_BYTES, "%.120s: %.80s (HTTP %d)", url, detail_of(json), status);
    } else if (!json) {
        snprintf(fault, PST_FAULT_BYTES, "%.120s: the answer is no JSON object (HTTP %d)", url, status);
        return -EPROTO;
    }
    if (out)
        *out = json;
    else
        pst_json_free(json);
    return status / 100 == 2 ? 0 : status;
}
