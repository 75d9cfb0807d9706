/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: a data store's addresses, from options and environment, and requests to it. */
#include "cli/data/data.h"
#include "cli/data/native.h"
#include "cli/data/report.h"

#include "base/percent.h"

enum { HTTP_PORT = 8081, HTTPS_PORT = 443, RSYNC_PORT = 873 };

#define SERVICE "kubetorch-data-store"

/* ---- where it is ---- */

/* The first that says something: an option, or variables in their order. */
static const char *said(const char *option, const char *variable, const char *other)
{
    const char *text = option && *option ? option : getenv(variable);

    if ((!text || !*text) && other)
        text = getenv(other);
    return text && *text ? text : NULL;
}

/* "host:port", "[v6]:port", or one of both without a port. Return: whether it is that. */
static bool take_host(struct pst_data *data, const char *text, size_t bytes, uint16_t port)
{
    const char *end = text + bytes, *host = text, *host_end, *after;
    uint64_t number = port;

    if (*text == '[') {
        host = text + 1;
        host_end = memchr(text, ']', bytes);
        after = host_end ? host_end + 1 : end;
    } else {
        host_end = memchr(text, ':', bytes);
        host_end = after = host_end ? host_end : end;
    }
    if (!host_end || host_end == host || host_end - host >= PST_DATA_HOST_BYTES_MAX)
        return false;
    if (after < end && (*after != ':' || pst_parse_digits(after + 1, &after, &number) < 0 || after != end ||
                        number == 0 || number > UINT16_MAX))
        return false;
    snprintf(data->host, sizeof(data->host), "%.*s", (int)(host_end - host), host);
    data->rsync_port = (uint16_t)number;
    return true;
}

/* The URL's host, on whose HTTP port rsync is served, too, unless that has TLS. */
static bool take_url_host(struct pst_data *data, const char *url)
{
    bool tls = strncmp(url, "https:", 6) == 0;
    const char *host = strstr(url, "://");
    const char *at = host ? strchr(host + 3, '@') : NULL;
    bool good;

    host = at && at < host + 3 + strcspn(host + 3, "/") ? at + 1 : host ? host + 3 : url;
    good = take_host(data, host, strcspn(host, "/"), tls ? HTTPS_PORT : 80);
    if (tls)
        data->rsync_port = 0;
    return good;
}

/* Return: 0, or the exit code of what was printed. */
static int find_addresses(struct pst_data *data, char url[PST_DATA_HOST_BYTES_MAX + 80], const char **found)
{
    const char *named = said(data->cli->store_, "PENSTOCK_DATA_URL", "KT_API_URL");
    const char *rsync = said(data->cli->rsync, "PENSTOCK_DATA_RSYNC", NULL);
    bool inside = getenv("KUBERNETES_SERVICE_HOST") != NULL;

    if (!named) {
        snprintf(data->host, sizeof(data->host), inside ? SERVICE ".%.200s.svc.cluster.local" : "127.0.0.1",
                 data->namespace);
        snprintf(url, PST_DATA_HOST_BYTES_MAX + 80, "http://%s:%d", data->host, HTTP_PORT);
        data->rsync_port = RSYNC_PORT;
    } else if (!take_url_host(data, named)) {
        return pst_cli_usage("store: '%.100s' is no http:// or https:// URL", named);
    }
    *found = named ? named : url;
    data->has_peers = inside || rsync || !named;
    if (rsync && !take_host(data, rsync, strlen(rsync), RSYNC_PORT))
        return pst_cli_usage("rsync: '%.100s' is no HOST:PORT", rsync);
    return 0;
}

/* ---- who asks ---- */

static int take_namespace(struct pst_data *data)
{
    const char *text = said(data->cli->namespace, "POD_NAMESPACE", NULL);

    text = text ? text : "default";
    if (strlen(text) > PST_DATA_NAMESPACE_BYTES_MAX || strchr(text, '/') || *text == '.')
        return pst_cli_usage("namespace: '%.100s' is no name", text);
    memcpy(data->namespace, text, strlen(text) + 1);
    return 0;
}

static int take_token(struct pst_data *data)
{
    const char *file = said(data->cli->token_file, "PENSTOCK_DATA_TOKEN_FILE", NULL);
    const char *text = file ? NULL : getenv("PENSTOCK_DATA_TOKEN");
    char fault[PST_FAULT_BYTES];
    int r = 0;

    if (file) {
        r = pst_secret_read(file, data->token, PST_DATA_TOKEN_BYTES_MAX, fault);
        if (r < 0)
            return pst_report_fault(r, fault);
        data->token[r] = 0; /* the end of its line came with it */
    } else if (text) {
        if (strlen(text) > PST_DATA_TOKEN_BYTES_MAX)
            return pst_cli_usage("PENSTOCK_DATA_TOKEN is longer than %d bytes", PST_DATA_TOKEN_BYTES_MAX);
        r = snprintf(data->token, sizeof(data->token), "%s", text);
    }
    data->token_bytes = (size_t)r;
    return 0;
}

static int take_transport(struct pst_data *data)
{
    static const char *const words[] = {
        [PST_DATA_AUTO] = "auto", [PST_DATA_NATIVE] = "native", [PST_DATA_RSYNC] = "rsync"};
    const char *text = said(data->cli->transport, "PENSTOCK_DATA_TRANSPORT", NULL);

    for (size_t i = 0; text && i < pst_count_of(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            data->transport = (enum pst_data_transport)i;
            return 0;
        }
    }
    return text ? pst_cli_usage("transport: '%.40s' is none of auto, native, rsync", text) : 0;
}

int pst_data_open(struct pst_cli *cli, struct pst_data *out)
{
    struct pst_http_settings settings = {.ca_file = said(cli->ca, "PENSTOCK_DATA_CA", NULL),
                                         .timeout_ms = (uint32_t)cli->timeout};
    char url[PST_DATA_HOST_BYTES_MAX + 80], fault[PST_FAULT_BYTES];
    struct pst_filter filters[PST_STRINGS_MAX];
    int r = pst_native_filters(&cli->filter, filters);

    *out = (struct pst_data){.cli = cli};
    if (r == 0)
        r = take_namespace(out);
    if (r == 0)
        r = take_transport(out);
    if (r == 0)
        r = take_token(out);
    if (r == 0)
        r = find_addresses(out, url, &settings.url);
    if (r)
        return r;
    settings.token = (struct pst_bytes){out->token, out->token_bytes};
    r = pst_http_open(&settings, &out->http, fault);
    return r < 0 ? pst_report_fault(r, fault) : 0;
}

void pst_data_close(struct pst_data *data)
{
    data->http = pst_http_close(data->http);
    explicit_bzero(data->token, sizeof(data->token));
}

int pst_data_key(const char *text, char key[PST_KEY_CAP])
{
    int r = pst_key_normalise(pst_bytes_of(text), key);

    if (r < 0)
        return pst_cli_usage("key '%.100s': %s", text,
                             r == -EINVAL ? "has a control character" : "is too long, or has too many parts");
    return *key ? 0 : pst_cli_usage("key '%.100s' is empty", text);
}

/* ---- requests ---- */

int pst_data_fail(int result, const char *fault)
{
    static const struct {
        int status, error;
    } table[] = {{400, -EINVAL}, {401, -EACCES}, {403, -EACCES}, {404, -ENOENT},
                 {413, -EFBIG},  {422, -EINVAL}, {507, -ENOSPC}};

    pst_assert(result != 0);
    if (result < 0)
        return pst_report_fault(result, fault);
    for (size_t i = 0; i < pst_count_of(table); i++)
        if (table[i].status == result)
            return pst_report_fault(table[i].error, fault);
    return pst_report_fault(-EIO, fault);
}

int pst_data_ask(struct pst_data *data, const char *method, const char *key, const char *route,
                 const char *query, const struct pst_json *body, struct pst_json **out,
                 char fault[PST_FAULT_BYTES])
{
    char quoted[3 * PST_KEY_CAP], namespace[3 * sizeof(data->namespace)];
    pst_cleanup_free char *target = NULL;
    int r = pst_percent_encode(pst_bytes_of(key ? key : ""), quoted, sizeof(quoted));

    pst_assert(r >= 0);
    if (strcmp(quoted, "list") == 0) /* as it is, it is the route of listings */
        snprintf(quoted, sizeof(quoted), "%%6Cist");
    pst_assert(pst_percent_encode(pst_bytes_of(data->namespace), namespace, sizeof(namespace)) > 0);
    if (asprintf(&target, "%s%s%s?namespace=%s%s%s", key ? "/api/v1/keys/" : "", quoted, route, namespace,
                 *query ? "&" : "", query) < 0) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    return pst_http_ask(data->http, method, target, body, out, fault);
}

int pst_data_call(struct pst_data *data, const char *method, const char *key, const char *route,
                  const char *query, const struct pst_json *body, struct pst_json **out)
{
    char fault[PST_FAULT_BYTES];
    struct pst_json *json = NULL;
    int r = pst_data_ask(data, method, key, route, query, body, &json, fault);

    if (r == 0 && out) {
        *out = json;
        return 0;
    }
    pst_json_free(json);
    return r ? pst_data_fail(r, fault) : 0;
}

int pst_data_info(struct pst_data *data, const char *key, struct pst_data_info *out)
{
    struct pst_json *json = NULL;
    bool found = true;
    const char *ip;
    int r = pst_data_call(data, "GET", key, "", "", NULL, &json);

    if (r)
        return r;
    pst_json_flag(pst_json_get(json, "found"), &found);
    ip = pst_json_text(pst_json_get(json, "store_pod_ip"));
    *out = (struct pst_data_info){.found = found, .stored = found && ip};
    pst_json_flag(pst_json_get(json, "is_directory"), &out->is_folder);
    snprintf(out->store_ip, sizeof(out->store_ip), "%s", ip ? ip : "");
    pst_json_free(json);
    return 0;
}
