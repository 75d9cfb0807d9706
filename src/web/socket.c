/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.c: WebSockets of the owner's. Any thread queues texts and asks for the end; the loop's thread sends.
 * What another thread has changed is in web->stirring until the loop has asked libwebsockets for room.
 */
#include "web/web_priv.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define SOCKET_MAGIC 0x736f636bu

/* A text on its way out, with the room in front that libwebsockets writes a frame's head to. */
struct text {
    struct pst_list link;
    size_t bytes;
    uint8_t data[];
};

struct pst_web_socket {
    uint32_t magic;
    struct party party;
    struct lws *wsi;
    void *user;
    char *path; /* and its query behind it */
    size_t path_bytes, query_bytes;
    bool open;                          /* the owner has it */
    bool probed;                        /* by its kernel's answers */
    char *message;                      /* that has come in part */
    size_t message_bytes, message_room; /* the room counts in web->bodies_bytes */
    uint64_t message_ns;                /* since when it comes */
    /* Under web->lock: */
    struct pst_list stir, texts;
    size_t waiting_bytes;
    bool ending, overflown, excused;
    uint64_t moved_ns; /* when the client last took something, or nothing waited */
};

static struct pst_web_socket *socket_cast(struct party *party)
{
    struct pst_web_socket *socket;

    pst_assert(party && party->magic == PARTY_MAGIC);
    socket = pst_container_of(party, struct pst_web_socket, party);
    pst_assert(socket->magic == SOCKET_MAGIC);
    return socket;
}

/* ---- any thread ---- */

/* Under the lock. */
static void stir(struct pst_web_socket *socket)
{
    struct pst_web *web = socket->party.web;

    pst_assert(socket->magic == SOCKET_MAGIC);
    if (!pst_list_empty(&socket->stir))
        return;
    pst_list_push_back(&web->stirring, &socket->stir);
    loop_wake(web);
}

/* Under the lock. Return: 0, or why the text was not queued. */
static int queue(struct pst_web_socket *socket, struct text *text)
{
    if (socket->ending)
        return -EPIPE;
    if (socket->waiting_bytes + text->bytes > PST_WEB_MESSAGE_BYTES_MAX) {
        socket->ending = socket->overflown = true;
        return -ENOBUFS;
    }
    if (pst_list_empty(&socket->texts))
        socket->moved_ns = pst_now_ns();
    pst_list_push_back(&socket->texts, &text->link);
    socket->waiting_bytes += text->bytes;
    pst_assert(socket->waiting_bytes <= PST_WEB_MESSAGE_BYTES_MAX);
    return 0;
}

int pst_web_socket_send(struct pst_web_socket *socket, const char *words)
{
    size_t bytes = strlen(words);
    struct pst_web *web;
    struct text *text;
    int r;

    pst_assert(socket && socket->magic == SOCKET_MAGIC);
    if (bytes > PST_WEB_MESSAGE_BYTES_MAX)
        return -EMSGSIZE;
    text = malloc(sizeof(*text) + LWS_PRE + bytes);
    if (!text)
        return -ENOMEM;
    pst_list_init(&text->link);
    text->bytes = bytes;
    memcpy(text->data + LWS_PRE, words, bytes);
    web = socket->party.web;
    pthread_mutex_lock(&web->lock);
    r = queue(socket, text);
    if (r != -EPIPE)
        stir(socket);
    pthread_mutex_unlock(&web->lock);
    if (r < 0)
        free(text);
    return r;
}

void pst_web_socket_end(struct pst_web_socket *socket)
{
    pst_assert(socket && socket->magic == SOCKET_MAGIC);
    pthread_mutex_lock(&socket->party.web->lock);
    socket->ending = true;
    stir(socket);
    pthread_mutex_unlock(&socket->party.web->lock);
}

void pst_web_socket_excuse(struct pst_web_socket *socket)
{
    pst_assert(socket && socket->magic == SOCKET_MAGIC);
    pthread_mutex_lock(&socket->party.web->lock);
    socket->excused = true;
    pthread_mutex_unlock(&socket->party.web->lock);
}

void pst_web_socket_keep(struct pst_web_socket *socket, void *user)
{
    pst_assert(socket && socket->magic == SOCKET_MAGIC);
    socket->user = user;
}

void *pst_web_socket_kept(const struct pst_web_socket *socket)
{
    pst_assert(socket && socket->magic == SOCKET_MAGIC);
    return socket->user;
}

/* ---- the loop's thread ---- */

void sockets_stirred(struct pst_web *web)
{
    pthread_mutex_lock(&web->lock);
    while (!pst_list_empty(&web->stirring)) {
        struct pst_web_socket *socket = pst_list_first(&web->stirring, struct pst_web_socket, stir);

        pst_list_remove(&socket->stir);
        pst_assert(socket->magic == SOCKET_MAGIC);
        if (socket->wsi && socket->overflown)
            bridge_kill(socket->wsi);
        else if (socket->wsi)
            lws_callback_on_writable(socket->wsi);
    }
    pthread_mutex_unlock(&web->lock);
}

static int end_with(struct pst_web_socket *socket, enum lws_close_status why)
{
    lws_close_reason(socket->wsi, why, NULL, 0);
    return -1;
}

static struct text *next_text(struct pst_web_socket *socket, bool *ending)
{
    struct text *text = NULL;

    pthread_mutex_lock(&socket->party.web->lock);
    if (!pst_list_empty(&socket->texts)) {
        text = pst_list_first(&socket->texts, struct text, link);
        pst_list_remove(&text->link);
        pst_assert(socket->waiting_bytes >= text->bytes);
        socket->waiting_bytes -= text->bytes;
        socket->moved_ns = pst_now_ns();
    }
    *ending = socket->ending && pst_list_empty(&socket->texts);
    pthread_mutex_unlock(&socket->party.web->lock);
    return text;
}

static int socket_writes(struct pst_web_socket *socket)
{
    bool ending;
    struct text *text = next_text(socket, &ending);
    int n;

    pst_assert(socket->open);
    pst_assert(socket->wsi);
    if (!text)
        return ending ? end_with(socket, LWS_CLOSE_STATUS_NORMAL) : 0;
    socket->party.moved_ns = pst_now_ns();
    n = lws_write(socket->wsi, text->data + LWS_PRE, text->bytes, LWS_WRITE_TEXT);
    free(text);
    if (n < 0)
        return -1;
    lws_callback_on_writable(socket->wsi); /* for the next one, or to see that this one has gone */
    return 0;
}

/* The message that comes in parts begins anew. */
static void message_drop(struct pst_web_socket *socket)
{
    struct pst_web *web = socket->party.web;

    pst_assert(web->bodies_bytes >= socket->message_room);
    web->bodies_bytes -= socket->message_room;
    free(socket->message);
    socket->message = NULL;
    socket->message_bytes = socket->message_room = 0;
}

/* Adds to the message. Return: 0, -EMSGSIZE, -ENOMEM. */
static int gather(struct pst_web_socket *socket, const void *data, size_t bytes)
{
    size_t wanted = socket->message_bytes + bytes, room = pst_max(socket->message_room, 1024);
    struct pst_web *web = socket->party.web;
    char *message;

    if (wanted > PST_WEB_MESSAGE_BYTES_MAX)
        return -EMSGSIZE;
    while (room < wanted)
        room *= 2;
    if (room > socket->message_room) {
        size_t more = room - socket->message_room;

        message = web->bodies_bytes + more > WEB_BODIES_BYTES ? NULL : realloc(socket->message, room);
        if (!message)
            return -ENOMEM;
        if (!socket->message)
            socket->message_ns = pst_now_ns();
        web->bodies_bytes += more;
        pst_assert(web->bodies_bytes <= WEB_BODIES_BYTES);
        socket->message = message;
        socket->message_room = room;
    }
    if (bytes)
        memcpy(socket->message + socket->message_bytes, data, bytes);
    pst_assert(wanted <= socket->message_room && web->bodies_bytes >= socket->message_room);
    socket->message_bytes = wanted;
    return 0;
}

static int socket_reads(struct pst_web_socket *socket, const void *data, size_t bytes)
{
    const struct pst_web *web = socket->party.web;
    int r;

    pst_assert(socket->open);
    socket->party.moved_ns = pst_now_ns();
    if (lws_frame_is_binary(socket->wsi))
        return end_with(socket, LWS_CLOSE_STATUS_UNACCEPTABLE_OPCODE);
    r = gather(socket, data, bytes);
    if (r < 0) {
        message_drop(socket); /* the others' turn does not wait until it has closed */
        return end_with(socket, r == -EMSGSIZE ? LWS_CLOSE_STATUS_MESSAGE_TOO_LARGE
                                               : LWS_CLOSE_STATUS_UNEXPECTED_CONDITION);
    }
    if (!lws_is_final_fragment(socket->wsi))
        return 0;
    web->ops->socket_message(web->ctx, socket, (struct pst_bytes){socket->message, socket->message_bytes});
    message_drop(socket);
    return 0;
}

static int socket_begins(struct pst_web_socket *socket)
{
    const struct pst_web *web = socket->party.web;
    struct pst_bytes path = {socket->path, socket->path_bytes};
    struct pst_bytes query = {socket->path + socket->path_bytes, socket->query_bytes};

    pst_assert(socket->wsi);
    pst_assert(!socket->open);
    if (web->ops->socket_open(web->ctx, socket, path, query) < 0)
        return end_with(socket, LWS_CLOSE_STATUS_POLICY_VIOLATION);
    socket->open = true;
    return 0;
}

/* libwebsockets has no more to do with it, or never had. */
static void socket_gone(struct pst_web_socket *socket)
{
    struct pst_web *web = socket->party.web;

    if (socket->open && web->ops->socket_close)
        web->ops->socket_close(web->ctx, socket);
    socket->open = false;
    socket->wsi = NULL;
    message_drop(socket);
    pthread_mutex_lock(&web->lock);
    pst_list_remove(&socket->stir);
    socket->ending = true;
    pthread_mutex_unlock(&web->lock);
    pst_assert(!socket->message);
    pst_assert(socket->message_room == 0);
    party_close(&socket->party);
}

static int socket_told(struct party *party, struct lws *wsi, enum lws_callback_reasons reason, void *in,
                       size_t len)
{
    struct pst_web_socket *socket = socket_cast(party);

    switch (reason) {
    case LWS_CALLBACK_WSI_CREATE:
        pst_assert(!socket->wsi);
        socket->wsi = wsi;
        return 0;
    case LWS_CALLBACK_ESTABLISHED:
        return socket_begins(socket);
    case LWS_CALLBACK_RECEIVE:
        return socket->open ? socket_reads(socket, in, len) : -1;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return socket->open ? socket_writes(socket) : 0;
    case LWS_CALLBACK_WSI_DESTROY:
        socket_gone(socket);
        return 0;
    default:
        return 0;
    }
}

static void socket_drop(struct party *party)
{
    struct pst_web_socket *socket = socket_cast(party);

    pthread_mutex_lock(&party->web->lock);
    socket->ending = true;
    pthread_mutex_unlock(&party->web->lock);
    if (socket->wsi)
        bridge_kill(socket->wsi);
}

/* libwebsockets takes it for alive, and TCP asks in its place. */
static void socket_excuse(struct pst_web_socket *socket)
{
    const int on = 1, idle_s = 60, every_s = 15, times = 4;
    int fd = lws_get_socket_fd(socket->wsi);

    lws_validity_confirmed(socket->wsi);
    if (socket->probed)
        return;
    socket->probed = true;
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static void socket_tick(struct party *party, uint64_t now_ns)
{
    struct pst_web_socket *socket = socket_cast(party);
    struct pst_web *web = party->web;
    bool stalled, excused;

    pthread_mutex_lock(&web->lock);
    stalled = (!pst_list_empty(&socket->texts) && web_is_late(web, socket->moved_ns, now_ns)) ||
              (socket->message && web_is_late(web, socket->message_ns, now_ns));
    excused = socket->excused;
    pthread_mutex_unlock(&web->lock);
    if (stalled)
        socket_drop(party);
    else if (excused && socket->open)
        socket_excuse(socket);
}

static void socket_close(struct party *party)
{
    if (!socket_cast(party)->wsi)
        socket_gone(socket_cast(party));
}

static void socket_free(struct party *party)
{
    struct pst_web_socket *socket = pst_container_of(party, struct pst_web_socket, party);

    pst_assert(!socket->open);
    pst_assert(!socket->wsi);
    pst_assert(!socket->message);
    while (!pst_list_empty(&socket->texts)) {
        struct text *text = pst_list_first(&socket->texts, struct text, link);

        pst_list_remove(&text->link);
        free(text);
    }
    free(socket->path);
    socket->magic = 0;
    free(socket);
}

void socket_open(struct party *from, int fd, const struct head *head, struct pst_bytes more)
{
    static const struct party_ops ops = {.tick = socket_tick,
                                         .told = socket_told,
                                         .drop = socket_drop,
                                         .close = socket_close,
                                         .free = socket_free};
    struct pst_web_socket *socket = calloc(1, sizeof(*socket));
    char *path = socket ? malloc(head->path.len + head->query.len) : NULL;

    if (!path) {
        free(socket);
        close(fd);
        return;
    }
    memcpy(path, head->path.data, head->path.len);
    if (head->query.len)
        memcpy(path + head->path.len, head->query.data, head->query.len);
    socket->magic = SOCKET_MAGIC;
    socket->path = path;
    socket->path_bytes = head->path.len;
    socket->query_bytes = head->query.len;
    pst_list_init(&socket->stir);
    pst_list_init(&socket->texts);
    party_open(&socket->party, &ops, from->web);
    party_pass_seat(from, &socket->party);
    socket->party.passes = true;
    socket->party.moved_ns = pst_now_ns();
    if (!bridge_adopt_socket(&socket->party, fd, head->socket_key, more))
        socket_gone(socket);
}
