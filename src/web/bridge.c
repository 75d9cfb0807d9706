/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bridge.c: what libwebsockets is told and tells. Each of its connections has a party as opaque pointer; the
 * last callback of a connection is the party's last, too. Two virtual hosts, as its TLS is one host's: the
 * plain one has WebSockets and the loop's set, the secure one bytes within TLS.
 */
#include "web/web_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char name_socket[] = "penstock";
static const char name_set[] = "penstock-set";
static const char name_tls[] = "penstock-tls";

static struct party *party_of(struct lws *wsi)
{
    struct party *party = lws_get_opaque_user_data(wsi);

    pst_assert(!party || party->magic == PARTY_MAGIC);
    return party;
}

static struct pst_web *web_of(struct lws *wsi)
{
    return web_cast(lws_context_user(lws_get_context(wsi)));
}

/* The party that is being adopted has its connection. */
static void settle(struct lws *wsi)
{
    struct pst_web *web = web_of(wsi);
    struct party *party = web->adopting;

    if (!party)
        return;
    pst_assert(party->magic == PARTY_MAGIC);
    web->adopting = NULL;
    lws_set_opaque_user_data(wsi, party);
    (void)party->ops->told(party, wsi, LWS_CALLBACK_WSI_CREATE, NULL, 0);
}

static int on_socket(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct party *party;

    (void)user;
    switch (reason) {
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        settle(wsi);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY: /* of every connection, the set's and TLS's as well */
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_SERVER_WRITEABLE:
        party = party_of(wsi);
        return party ? party->ops->told(party, wsi, reason, in, len) : 0;
    case LWS_CALLBACK_HTTP: /* the head is ours and asks for a WebSocket */
    case LWS_CALLBACK_HTTP_BODY:
        return -1;
    default:
        return 0;
    }
}

static int on_set(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    (void)user;
    (void)in;
    (void)len;
    if (reason == LWS_CALLBACK_RAW_RX_FILE)
        web_of(wsi)->stirred = true;
    return 0;
}

static int on_tls(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct party *party;

    (void)user;
    switch (reason) {
    case LWS_CALLBACK_RAW_ADOPT:
        settle(wsi);
        return 0;
    case LWS_CALLBACK_RAW_RX:
    case LWS_CALLBACK_RAW_WRITEABLE:
        party = party_of(wsi);
        return party ? party->ops->told(party, wsi, reason, in, len) : -1;
    case LWS_CALLBACK_WSI_DESTROY: /* protocols[0] of the secure host is this one */
        return on_socket(wsi, reason, user, in, len);
    default:
        return 0;
    }
}

/* ---- connections ---- */

bool bridge_adopt_socket(struct party *party, int fd, struct pst_bytes key, struct pst_bytes more)
{
    struct pst_web *web = party->web;
    pst_cleanup_free char *head = malloc(512 + more.len);
    int bytes;

    if (!head) {
        close(fd);
        return false;
    }
    pst_assert(key.len == 24);
    pst_assert(party->magic == PARTY_MAGIC);
    pst_assert(fd >= 0);
    pst_assert(!web->adopting);
    /* Nothing of what the client wrote but the key, which has been looked at. */
    bytes = snprintf(head, 512,
                     "GET / HTTP/1.1\r\nHost: penstock\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Key: %.*s\r\nSec-WebSocket-Version: 13\r\n\r\n",
                     (int)key.len, (const char *)key.data);
    pst_assert(bytes > 0 && bytes < 512);
    if (more.len)
        memcpy(head + bytes, more.data, more.len);
    web->adopting = party;
    lws_adopt_socket_vhost_readbuf(web->plain, fd, head, (size_t)bytes + more.len);
    /* Where libwebsockets has closed it again, the party has been told, and may be closed. */
    if (web->adopting != party)
        return true;
    web->adopting = NULL;
    return false;
}

bool bridge_adopt_tls(struct party *party, int fd)
{
    struct pst_web *web = party->web;
    lws_sock_file_fd_type which = {.sockfd = fd};

    pst_assert(web->secure);
    pst_assert(party->magic == PARTY_MAGIC);
    pst_assert(fd >= 0);
    pst_assert(!web->adopting);
    web->adopting = party;
    lws_adopt_descriptor_vhost(web->secure, LWS_ADOPT_SOCKET | LWS_ADOPT_ALLOW_SSL, which, name_tls, NULL);
    if (web->adopting != party)
        return true;
    web->adopting = NULL;
    return false;
}

void bridge_kill(struct lws *wsi)
{
    lws_set_timeout(wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
}

/* ---- its log ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct pst_web *log_web; /* whose ops have the lines */

static void emit(int level, const char *line)
{
    char text[256];

    (void)level;
    /* It calls it an error that a connection is handed over with bytes that were read before. */
    if (strstr(line, "adopt_socket_readbuf"))
        return;
    snprintf(text, sizeof(text), "%s", line);
    text[strcspn(text, "\r\n")] = 0;
    pthread_mutex_lock(&log_lock);
    if (log_web && log_web->ops->log)
        log_web->ops->log(log_web->ctx, text);
    pthread_mutex_unlock(&log_lock);
}

static void log_begin(const struct pst_web *web)
{
    pthread_mutex_lock(&log_lock);
    if (!log_web)
        log_web = web;
    pthread_mutex_unlock(&log_lock);
    lws_set_log_level(LLL_ERR | LLL_WARN, emit);
}

static void log_end(const struct pst_web *web)
{
    pthread_mutex_lock(&log_lock);
    if (log_web == web)
        log_web = NULL;
    pthread_mutex_unlock(&log_lock);
}

/* ---- open and close ---- */

static int open_secure(struct pst_web *web, struct lws_context_creation_info *info, const char *certificate,
                       const char *private_key)
{
    static const struct lws_protocols protocols[] = {
        {.name = name_tls, .callback = on_tls, .rx_buffer_size = WEB_PIECE_BYTES},
        {.name = NULL},
    };

    pst_assert(!web->secure);
    pst_assert(web->plain);
    info->vhost_name = "secure";
    info->protocols = protocols;
    info->ssl_cert_filepath = certificate;
    info->ssl_private_key_filepath = private_key;
    info->alpn = "http/1.1";
    web->secure = lws_create_vhost(web->lws, info);
    return web->secure ? 0 : -EIO;
}

int bridge_open(struct pst_web *web, const char *certificate, const char *private_key)
{
    static const struct lws_protocols protocols[] = {
        {.name = name_socket, .callback = on_socket, .rx_buffer_size = WEB_PIECE_BYTES},
        {.name = name_set, .callback = on_set},
        {.name = NULL},
    };
    static const lws_retry_bo_t idle = {.secs_since_valid_ping = 60, .secs_since_valid_hangup = 300};
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .vhost_name = "plain",
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_VALIDATE_UTF8 |
                   (certificate ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
        .gid = -1,
        .uid = -1,
        .user = web,
        .max_http_header_pool = (unsigned short)pst_min(web->connections_max + 1, UINT16_MAX),
        .pt_serv_buf_size = WEB_PIECE_BYTES,
        .fd_limit_per_thread = 2 * web->connections_max + 16,
        .timeout_secs = (unsigned)pst_max(web->stall_ns / 1000000000, 1),
        .retry_and_idle_policy = &idle,
    };
    /* Its own, as it closes it before others have left the set. */
    lws_sock_file_fd_type set = {.filefd = fcntl(web->poll_fd, F_DUPFD_CLOEXEC, 0)};

    pst_assert(!web->lws);
    pst_assert(web->poll_fd >= 0);
    log_begin(web);
    if (set.filefd < 0)
        return -errno;
    web->lws = lws_create_context(&info);
    web->plain = web->lws ? lws_create_vhost(web->lws, &info) : NULL;
    if (!web->plain)
        close(set.filefd);
    if (!web->plain || !lws_adopt_descriptor_vhost(web->plain, LWS_ADOPT_RAW_FILE_DESC, set, name_set, NULL))
        return -EIO;
    return certificate ? open_secure(web, &info, certificate, private_key) : 0;
}

void bridge_close(struct pst_web *web)
{
    if (web->lws)
        lws_context_destroy(web->lws);
    web->lws = NULL;
    log_end(web);
}
