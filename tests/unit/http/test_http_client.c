/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the client to a server of ours: what arrives there, and what its answers become. */
#include "lib/web_rig.h"

#include "base/percent.h"
#include "http/client.h"

static char fault[PST_FAULT_BYTES];

/* Answers with the status that the path names, and what it was asked as JSON. */
static void answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *out)
{
    char path[64];
    int status = 200;

    (void)ctx;
    snprintf(path, sizeof(path), "%.*s", (int)request->path.len, (const char *)request->path.data);
    sscanf(path, "/base/%d", &status);
    out->status = status;
    out->text = malloc(PST_JSON_ANSWER_BYTES_MAX + 4096);
    if (strcmp(path, "/base/text") == 0)
        strcpy(out->text, "no JSON");
    else if (strcmp(path, "/base/list") == 0)
        strcpy(out->text, "[1]");
    else if (strcmp(path, "/base/long") == 0)
        sprintf(out->text, "{\"a\":\"%0*d\"}", PST_JSON_ANSWER_BYTES_MAX, 0);
    else
        sprintf(out->text, "{\"detail\":\"because\",\"said\":\"%s %s %.*s\",\"bytes\":%zu}", request->method,
                path, (int)request->query.len, (const char *)request->query.data, request->body.len);
}

static const struct pst_web_ops ops = {.answer = answer};

struct pair {
    struct pst_web *web;
    struct pst_http *http;
    char url[64];
};

static void pair_open(struct pair *pair, const char *wanted, const char *shown)
{
    struct pst_web_settings settings = {
        .listen = "127.0.0.1:0", .token = pst_bytes_of(wanted), .token_on_loopback = *wanted != 0};
    struct pst_http_settings client = {.url = pair->url, .token = pst_bytes_of(shown), .timeout_ms = 20000};
    const char *why = "";

    assert_return_code(pst_web_open(&settings, &ops, NULL, &pair->web, &why), 0);
    snprintf(pair->url, sizeof(pair->url), "http://127.0.0.1:%u/base//", pst_web_port(pair->web));
    assert_return_code(pst_http_open(&client, &pair->http, fault), 0);
}

static void pair_close(struct pair *pair)
{
    pst_http_close(pair->http);
    pst_web_close(pair->web);
}

static void asks(struct pst_http *http, const char *method, const char *target, const struct pst_json *body,
                 const char *said, int64_t bytes)
{
    struct pst_json *json = NULL;
    int64_t got = -1;

    assert_int_equal(pst_http_ask(http, method, target, body, &json, fault), 0);
    assert_string_equal(pst_json_text(pst_json_get(json, "said")), said);
    assert_true(pst_json_integer(pst_json_get(json, "bytes"), &got));
    assert_int_equal(got, bytes);
    pst_json_free(json);
}

static void methods_paths_and_bodies_arrive(void **state)
{
    struct pair pair;
    struct pst_json *body = pst_json_new_object();

    (void)state;
    pair_open(&pair, "", "");
    pst_json_add_text(body, "k", "v");
    asks(pair.http, "GET", "/x?a=b", NULL, "GET /base/x a=b", 0);
    asks(pair.http, "POST", "/x", body, "POST /base/x ", 9);
    asks(pair.http, "GET", "/x%2Fy/../z", NULL, "GET /base/x%2Fy/../z ", 0);
    asks(pair.http, "DELETE", "/x", NULL, "DELETE /base/x ", 0);
    asks(pair.http, "POST", "/x", NULL, "POST /base/x ", 0);
    assert_int_equal(pst_web_connections(pair.web), 1);
    assert_null(strstr(pst_http_url(pair.http), "base/"));
    pst_json_free(body);
    pair_close(&pair);
}

static void refusals_name_url_and_status(void **state)
{
    struct pair pair;
    struct pst_json *json = NULL;

    (void)state;
    pair_open(&pair, "", "");
    assert_int_equal(pst_http_ask(pair.http, "GET", "/503", NULL, &json, fault), 503);
    assert_string_equal(pst_json_text(pst_json_get(json, "detail")), "because");
    assert_non_null(strstr(fault, "/base/503: because (HTTP 503)"));
    pst_json_free(json);
    assert_int_equal(pst_http_ask(pair.http, "GET", "/404", NULL, NULL, fault), 404);
    assert_int_equal(pst_http_ask(pair.http, "GET", "/text", NULL, NULL, fault), -EPROTO);
    assert_int_equal(pst_http_ask(pair.http, "GET", "/list", NULL, NULL, fault), -EPROTO);
    assert_int_equal(pst_http_ask(pair.http, "GET", "/long", NULL, NULL, fault), -EFBIG);
    assert_non_null(strstr(fault, "/base/long: the answer is too long"));
    asks(pair.http, "GET", "/x", NULL, "GET /base/x ", 0); /* the client goes on */
    pair_close(&pair);
}

static void the_token_is_shown(void **state)
{
    struct pair pair;

    (void)state;
    pair_open(&pair, "secret", "secret");
    asks(pair.http, "GET", "/x", NULL, "GET /base/x ", 0);
    pair_close(&pair);
    pair_open(&pair, "secret", "guess");
    assert_int_equal(pst_http_ask(pair.http, "GET", "/x", NULL, NULL, fault), 401);
    pair_close(&pair);
}

static void servers_that_are_none(void **state)
{
    struct pst_http_settings settings = {.url = "http://127.0.0.1:1", .timeout_ms = 300};
    struct pst_http *http = NULL;
    char url[64];
    uint16_t port;
    int fd = web_listen(&port);

    (void)state;
    assert_return_code(pst_http_open(&settings, &http, fault), 0);
    assert_int_equal(pst_http_ask(http, "GET", "/x", NULL, NULL, fault), -ECONNREFUSED);
    assert_non_null(strstr(fault, "http://127.0.0.1:1/x: "));
    pst_http_close(http);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port); /* takes the connection, and says nothing */
    settings.url = url;
    assert_return_code(pst_http_open(&settings, &http, fault), 0);
    assert_int_equal(pst_http_ask(http, "GET", "/x", NULL, NULL, fault), -ETIMEDOUT);
    pst_http_close(http);
    close(fd);
}

static void what_cannot_be_a_server(void **state)
{
    static const char *const urls[] = {
        "", "127.0.0.1:1", "ftp://h", "file:///etc/passwd", "http://h/?a", "http://h#b"};
    struct pst_http_settings settings = {.timeout_ms = 1000};
    struct pst_http *http = NULL;

    (void)state;
    for (size_t i = 0; i < pst_count_of(urls); i++) {
        settings.url = urls[i];
        assert_int_equal(pst_http_open(&settings, &http, fault), -EINVAL);
    }
    settings.url = "http://h";
    settings.token = pst_bytes_of("two\r\nlines");
    assert_int_equal(pst_http_open(&settings, &http, fault), -EINVAL);
    assert_null(http);
    assert_null(pst_http_close(NULL));
}

static void text_is_quoted(void **state)
{
    char buf[32];

    (void)state;
    assert_int_equal(pst_percent_encode(pst_bytes_of("a/B 9~._-%"), buf, sizeof(buf)), 16);
    assert_string_equal(buf, "a%2FB%209~._-%25");
    assert_int_equal(pst_percent_encode(pst_bytes_of("\xff"), buf, 4), 3);
    assert_string_equal(buf, "%FF");
    assert_int_equal(pst_percent_encode(pst_bytes_of("\xff"), buf, 3), -ENOSPC);
    assert_int_equal(pst_percent_encode(pst_bytes_of("ab"), buf, 2), -ENOSPC);
    assert_int_equal(pst_percent_encode(pst_bytes_of(""), buf, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_paths_and_bodies_arrive),
        cmocka_unit_test(refusals_name_url_and_status),
        cmocka_unit_test(the_token_is_shown),
        cmocka_unit_test(servers_that_are_none),
        cmocka_unit_test(what_cannot_be_a_server),
        cmocka_unit_test(text_is_quoted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
