/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.c: one client's connection, from its first byte: requests one after the other, or what becomes of it.
 * A step reads or writes what the socket has, and the next one follows when the socket has more.
 */
#include "web/web_priv.h"

#include "base/http.h"

#include "base/clock.h"
#include "base/ms.h"

#include <stdio.h>
#include <strings.h>
#include <sys/epoll.h>

enum {
    READ_BYTES = 4096, /* at first */
    LINGER_BYTES = 1 << 20,
    FIRST_BYTES = 8, /* of "@RSYNCD:" */
    TLS_HELLO = 0x16,
    STEPS_A_ROUND = 32,
};

_Static_assert((int)FIRST_BYTES <= (int)READ_BYTES && (int)READ_BYTES <= (int)HEAD_BYTES_MAX,
               "the first reading tells what a client speaks");

enum step {
    STEP_FIRST, /* what does it speak */
    STEP_HEAD,
    STEP_BODY,
    STEP_ANSWER, /* a worker has it */
    STEP_SEND,
    STEP_LINGER, /* a refused client may still read why */
    STEP_CLOSED,
};

struct http {
    struct party party;
    struct watch watch;
    enum step step;
    bool loopback;
    bool keep_alive; /* after this answer */
    bool no_body;    /* of the answer: the method was HEAD */
    bool head_began; /* and has its time from then on */
    bool is_known;   /* the present request is whole, and may be answered */
    bool is_open;    /* and would be without a token, too */
    bool answered;   /* one before it was */
    char peer[WEB_PEER_BYTES];
    struct pace pace;
    char *in; /* a head, and what came behind it */
    size_t in_bytes, in_room, looked_at, head_bytes;
    struct head head; /* points into @in */
    struct body body;
    struct work *work;
    char *out;
    size_t out_at, out_bytes, lingered;
};

static struct http *http_cast(struct party *party)
{
    pst_assert(party && party->magic == PARTY_MAGIC);
    return pst_container_of(party, struct http, party);
}

static void http_step(struct http *h);

static void body_drop(struct http *h)
{
    struct pst_web *web = h->party.web;

    pst_assert(web->bodies_bytes >= h->body.room);
    web->bodies_bytes -= h->body.room;
    free(h->body.data);
    h->body = (struct body){.data = NULL};
}

static void answer_drop(struct http *h)
{
    struct pst_web *web = h->party.web;

    pst_assert(web->answers_bytes >= h->out_bytes);
    web->answers_bytes -= h->out_bytes;
    free(h->out);
    h->out = NULL;
    h->out_at = h->out_bytes = 0;
}

static void http_close(struct party *party)
{
    struct http *h = http_cast(party);

    if (h->work)
        workers_forget(party->web, h->work);
    h->work = NULL;
    body_drop(h);
    answer_drop(h);
    watch_close(party->web, &h->watch);
    h->step = STEP_CLOSED;
    party_close(party);
}

static void http_free(struct party *party)
{
    struct http *h = pst_container_of(party, struct http, party);

    pst_assert(h->step == STEP_CLOSED);
    pst_assert(h->watch.fd < 0);
    pst_assert(!h->work);
    pst_assert(!h->out);
    free(h->in);
    free(h);
}

static enum yields http_yields(const struct party *party)
{
    const struct http *h = pst_container_of(party, struct http, party);

    if (h->is_known && !h->is_open)
        return YIELDS_NOT;
    if (h->is_known || h->step > STEP_BODY) /* a stranger has asked, or is refused; or all is out */
        return YIELDS_LAST;
    return h->answered && h->step <= STEP_HEAD && !h->head_began ? YIELDS_LAST : YIELDS_FIRST;
}

static void http_tick(struct party *party, uint64_t now_ns)
{
    struct http *h = http_cast(party);
    bool late = web_is_late(party->web, h->pace.since_ns, now_ns);

    pst_assert(h->step != STEP_CLOSED);
    pst_assert(!h->work == (h->step != STEP_ANSWER));
    if (h->step == STEP_LINGER)
        late |= now_ns - h->pace.since_ns > pst_ns_of_ms(WEB_LINGER_MS);
    if (late && h->step != STEP_ANSWER)
        http_close(party);
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < pst_count_of(known); i++)
        if (known[i].status == status)
            return known[i].reason;
    return "Other";
}

/* Puts an answer together and begins to send it. */
static void respond(struct http *h, int status, const char *type, const char *more, struct pst_bytes text)
{
    bool empty = status == 204 || status == 304;
    char *out = malloc(512 + text.len);
    int bytes;

    if (!out) {
        http_close(&h->party);
        return;
    }
    pst_assert(status >= 200 && status < 600);
    pst_assert(!h->out);
    pst_assert(h->out_at == 0);
    pst_assert(!h->work);
    bytes = snprintf(out, 512, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
    if (!empty)
        bytes += snprintf(out + bytes, 512 - (size_t)bytes, "Content-Type: %.100s\r\nContent-Length: %zu\r\n",
                          type, text.len);
    bytes += snprintf(out + bytes, 512 - (size_t)bytes, "%sConnection: %s\r\n\r\n", more,
                      h->keep_alive ? "keep-alive" : "close");
    pst_assert(bytes > 0 && bytes < 512);
    if (text.len && !empty && !h->no_body) {
        memcpy(out + bytes, text.data, text.len);
        bytes += (int)text.len;
    }
    h->out = out;
    h->out_bytes = (size_t)bytes;
    h->party.web->answers_bytes += h->out_bytes;
    h->step = STEP_SEND;
    pace_begin(&h->pace, h->out_bytes, pst_now_ns());
}

/* Ends the connection with a status: what comes behind it is not looked at. */
static void refuse_with(struct http *h, int status, const char *more)
{
    char text[96];
    int bytes = snprintf(text, sizeof(text), "{\"detail\":\"%s\"}", reason_of(status));

    pst_assert(bytes > 0 && (size_t)bytes < sizeof(text));
    h->keep_alive = false;
    body_drop(h);
    respond(h, status, "application/json", more, (struct pst_bytes){text, (size_t)bytes});
}

static void refuse(struct http *h, int status)
{
    refuse_with(h, status, "");
}

void http_answered(struct http *h, struct pst_web_answer *answer)
{
    struct pst_bytes text = {answer->text, answer->text_bytes};
    bool sound = answer->status >= 200 && answer->status < 600;

    pst_assert(h->step == STEP_ANSWER);
    pst_assert(h->work);
    h->work = NULL;
    if (answer->text && answer->text_bytes == 0)
        text.len = strlen(answer->text);
    if (!sound || text.len > INT32_MAX / 2) {
        refuse(h, 500);
    } else if (text.len > 0 && h->party.web->answers_bytes + text.len > WEB_ANSWERS_BYTES) {
        refuse(h, 503);
    } else {
        respond(h, answer->status, answer->content_type ? answer->content_type : "application/json", "",
                text);
    }
    http_step(h);
}

/* ---- what a request is ---- */

static bool token_is_same(const struct pst_web *web, struct pst_bytes shown)
{
    const uint8_t *theirs = shown.data, *ours = (const uint8_t *)web->token;
    unsigned difference = shown.len != web->token_bytes;

    pst_assert(web->token_bytes > 0);
    for (size_t i = 0; i < shown.len; i++) /* as long for a wrong one */
        difference |= theirs[i] ^ ours[i % web->token_bytes];
    return difference == 0;
}

static bool peer_needs_token(const struct http *h)
{
    const struct pst_web *web = h->party.web;

    return web->token_bytes > 0 && (!h->loopback || web->token_on_loopback);
}

static bool request_is_allowed(const struct http *h)
{
    const struct head *head = &h->head;
    struct pst_bytes shown = head->authorization;
    char text[1024];
    int bytes;

    if (!peer_needs_token(h) || head_asks(head, h->party.web->open_paths))
        return true;
    if (shown.len > 7 && strncasecmp(shown.data, "Bearer ", 7) == 0)
        return token_is_same(h->party.web, (struct pst_bytes){(const char *)shown.data + 7, shown.len - 7});
    bytes = head->upgrade ? pst_web_query(head->query, "token", text, sizeof(text)) : -ENOENT;
    return bytes > 0 && token_is_same(h->party.web, (struct pst_bytes){text, (size_t)bytes});
}

/* The tunnel whose path it is: prefix + namespace, and a last slash or none. NULL: it is none. */
static const struct tunnel *tunnel_of(const struct pst_web *web, struct pst_bytes path)
{
    for (size_t i = 0; i < pst_count_of(web->tunnels); i++) {
        const struct tunnel *tunnel = &web->tunnels[i];
        size_t prefix_bytes = tunnel->prefix ? strlen(tunnel->prefix) : path.len;
        const char *name = (const char *)path.data + prefix_bytes, *slash;

        if (path.len <= prefix_bytes || memcmp(path.data, tunnel->prefix, prefix_bytes) != 0)
            continue;
        slash = memchr(name, '/', path.len - prefix_bytes);
        return slash != name && (!slash || slash == (const char *)path.data + path.len - 1) ? tunnel : NULL;
    }
    return NULL;
}

static bool is_socket(const struct pst_web *web, struct pst_bytes path)
{
    return web->ops->socket_open && path.len > 4 && memcmp(path.data, "/ws/", 4) == 0;
}

static bool is_key(struct pst_bytes key)
{
    const char *at = key.data;

    if (key.len != 24 || at[22] != '=' || at[23] != '=')
        return false;
    for (int i = 0; i < 22; i++)
        if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'z') ||
              (at[i] >= 'A' && at[i] <= 'Z') || at[i] == '+' || at[i] == '/'))
            return false;
    return true;
}

/* A WebSocket's head has come: the connection goes over to another party. */
static void upgrade(struct http *h)
{
    const struct head *head = &h->head;
    struct pst_web *web = h->party.web;
    struct pst_bytes more = {h->in + h->head_bytes, h->in_bytes - h->head_bytes};
    const struct tunnel *tunnel = tunnel_of(web, head->path);
    int fd;

    pst_assert(h->step == STEP_HEAD);
    if (!tunnel && !is_socket(web, head->path)) {
        refuse(h, 404);
        return;
    }
    if (!pst_bytes_equal(head->socket_version, pst_bytes_of("13"))) {
        refuse_with(h, 426, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
        return;
    }
    if (!head_method_is(head, "GET") || !is_key(head->socket_key) || head->body_bytes > 0) {
        refuse(h, 400);
        return;
    }
    if (!loop_make_passage(web)) {
        refuse(h, 503);
        return;
    }
    pst_assert(h->head_bytes <= h->in_bytes);
    pst_assert(!h->work);
    pst_assert(!h->out);
    fd = watch_give(web, &h->watch);
    if (tunnel)
        tunnel_open(&h->party, fd, tunnel, head, more);
    else
        socket_open(&h->party, fd, head, more);
    http_close(&h->party);
}

static void ask(struct http *h)
{
    pst_assert(!h->work);
    pst_assert(!h->out);
    pst_assert(h->body.bytes == h->head.body_bytes);
    pst_assert(h->step == STEP_HEAD || h->step == STEP_BODY);
    h->is_known = true;
    h->is_open = head_asks(&h->head, h->party.web->open_paths);
    h->work = workers_ask(h->party.web, h, &h->head, &h->body, h->peer);
    if (!h->work) {
        refuse(h, 503);
        return;
    }
    h->body = (struct body){.data = NULL};
    h->step = STEP_ANSWER;
}

/* Moves what came behind the head to the body. Return: false there is no memory for it. */
static bool begin_body(struct http *h)
{
    size_t here = pst_min(h->in_bytes - h->head_bytes, h->head.body_bytes);
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    pst_assert(!h->body.data);
    pst_assert(h->body.room == 0);
    pst_assert(here <= PST_WEB_BODY_BYTES_MAX);
    pst_assert(h->step == STEP_HEAD);
    pst_assert(h->head_bytes <= h->in_bytes);
    if (h->party.web->bodies_bytes + here > WEB_BODIES_BYTES)
        return false;
    h->step = STEP_BODY;
    pace_begin(&h->pace, h->head.body_bytes, pst_now_ns());
    if (h->head.expect_continue && here == 0 && h->head.version_11)
        (void)!send(h->watch.fd, go_on, sizeof(go_on) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (here == 0)
        return true;
    h->body.data = malloc(here);
    if (!h->body.data)
        return false;
    memcpy(h->body.data, h->in + h->head_bytes, here);
    h->body.bytes = h->body.room = here;
    h->party.web->bodies_bytes += here;
    pst_assert(h->party.web->bodies_bytes <= WEB_BODIES_BYTES);
    memmove(h->in + h->head_bytes, h->in + h->head_bytes + here, h->in_bytes - h->head_bytes - here);
    h->in_bytes -= here;
    return true;
}

/* Where no token is asked for, a page may also have given a name of its own to this host's address. */
static bool site_is_refused(const struct http *h)
{
    const struct pst_web *web = h->party.web;
    bool trusted = web->token_bytes == 0 && h->loopback;

    return head_is_of_another_site(&h->head) || (trusted && head_names_a_foreign_host(&h->head, web->name));
}

static void head_came(struct http *h)
{
    struct pst_web *web = h->party.web;
    int status = head_parse(h->in, h->head_bytes, &h->head);

    h->keep_alive = false;
    h->no_body = head_method_is(&h->head, "HEAD");
    if (status) {
        refuse(h, status);
    } else if (!request_is_allowed(h)) {
        refuse_with(h, 401, "WWW-Authenticate: Bearer\r\n");
    } else if (site_is_refused(h)) {
        refuse(h, 403);
    } else if (h->head.upgrade) {
        upgrade(h);
    } else if (h->head.body_bytes > PST_WEB_BODY_BYTES_MAX) {
        refuse(h, 413);
    } else {
        h->keep_alive = h->head.keep_alive && !web->stopping;
        if (h->head.body_bytes == 0)
            ask(h);
        else if (!begin_body(h))
            refuse(h, 503);
    }
}

/* ---- steps: each returns whether the next one can go on at once ---- */

/* Return: what recv() said, but -EAGAIN for "not yet" and 0 for the end. */
static ssize_t receive(struct http *h, void *to, size_t bytes, int flags)
{
    ssize_t n = recv(h->watch.fd, to, bytes, flags | MSG_DONTWAIT);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    return n;
}

static bool ended(struct http *h, ssize_t n)
{
    if (n > 0 || n == -EAGAIN)
        return false;
    http_close(&h->party);
    return true;
}

static bool step_first(struct http *h)
{
    static const char greeting[FIRST_BYTES] = {'@', 'R', 'S', 'Y', 'N', 'C', 'D', ':'};
    struct pst_web *web = h->party.web;
    char first[FIRST_BYTES];
    ssize_t n = receive(h, first, sizeof(first), MSG_PEEK);
    bool begins;
    int low;

    if (ended(h, n) || n < 0)
        return false;
    pst_assert((size_t)n <= sizeof(first));
    begins = memcmp(first, greeting, (size_t)n) == 0;
    low = begins && n < FIRST_BYTES ? FIRST_BYTES : 1; /* to be woken when all eight have come */
    setsockopt(h->watch.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
    if (begins && n < FIRST_BYTES) {
        if ((size_t)n == h->looked_at) /* woken for no more: that was all */
            http_close(&h->party);
        h->looked_at = (size_t)n;
        return false;
    }
    h->looked_at = 0;
    if (begins) {
        if (web->tunnels[0].prefix && !peer_needs_token(h) && (!web->secure || h->loopback))
            raw_open(&h->party, watch_give(web, &h->watch));
        http_close(&h->party);
        return false;
    }
    if (!web->secure) {
        h->step = STEP_HEAD;
        return true;
    }
    if (first[0] == TLS_HELLO) {
        tls_open(&h->party, watch_give(web, &h->watch), h->peer, h->loopback);
        http_close(&h->party);
        return false;
    }
    refuse(h, 400); /* this port speaks TLS */
    return true;
}

/* Makes room behind what has come of a head. Return: false that is none. */
static bool grow_in(struct http *h)
{
    size_t room = h->in_room ? 2 * h->in_room : READ_BYTES;
    char *in;

    pst_assert(h->in_bytes <= h->in_room && h->in_room <= HEAD_BYTES_MAX);
    if (h->in_bytes < h->in_room)
        return true;
    in = room <= HEAD_BYTES_MAX ? realloc(h->in, room) : NULL;
    if (!in)
        return false;
    h->in = in;
    h->in_room = room;
    return true;
}

static void skip_empty_lines(struct http *h)
{
    size_t skip = 0;

    while (h->in_bytes - skip >= 2 && memcmp(h->in + skip, "\r\n", 2) == 0)
        skip += 2;
    if (skip == 0)
        return;
    pst_assert(skip <= h->in_bytes);
    memmove(h->in, h->in + skip, h->in_bytes - skip);
    h->in_bytes -= skip;
    h->looked_at = 0;
}

static bool step_head(struct http *h)
{
    ssize_t n;

    skip_empty_lines(h);
    h->head_bytes = pst_http_head_end(h->in, h->in_bytes, h->looked_at);
    pst_assert(h->head_bytes <= h->in_bytes);
    h->looked_at = h->in_bytes;
    if (h->head_bytes) {
        head_came(h);
        return h->step != STEP_CLOSED;
    }
    if (!grow_in(h)) {
        refuse(h, 431);
        return true;
    }
    n = receive(h, h->in + h->in_bytes, h->in_room - h->in_bytes, 0);
    if (ended(h, n) || n < 0)
        return false;
    if (!h->head_began)
        pace_begin(&h->pace, 0, pst_now_ns());
    h->head_began = true;
    h->in_bytes += (size_t)n;
    pst_assert(h->in_bytes <= h->in_room);
    return true;
}

/* Doubles the body's memory, up to its length, if all bodies together leave that. */
static bool grow_body(struct http *h)
{
    struct pst_web *web = h->party.web;
    size_t room = pst_min(pst_max(2 * h->body.room, READ_BYTES), h->head.body_bytes);
    char *data;

    pst_assert(h->body.bytes <= h->body.room);
    if (h->body.bytes < h->body.room)
        return true;
    pst_assert(room > h->body.room);
    if (web->bodies_bytes + room - h->body.room > WEB_BODIES_BYTES)
        return false;
    data = realloc(h->body.data, room);
    if (!data)
        return false;
    web->bodies_bytes += room - h->body.room;
    h->body.data = data;
    h->body.room = room;
    pst_assert(h->body.room <= h->head.body_bytes);
    pst_assert(web->bodies_bytes <= WEB_BODIES_BYTES);
    return true;
}

static bool step_body(struct http *h)
{
    ssize_t n;

    pst_assert(h->step == STEP_BODY);
    pst_assert(h->body.bytes <= h->head.body_bytes);
    if (h->body.bytes == h->head.body_bytes) {
        ask(h);
        return true;
    }
    if (!grow_body(h)) {
        refuse(h, 503);
        return true;
    }
    n = receive(h, h->body.data + h->body.bytes, h->body.room - h->body.bytes, 0);
    if (ended(h, n) || n < 0)
        return false;
    h->body.bytes += (size_t)n;
    pst_assert(h->body.bytes <= h->head.body_bytes);
    pace_moved(&h->pace, (size_t)n, pst_now_ns());
    return true;
}

/* The answer is out: another request, or the end. */
static bool sent(struct http *h)
{
    pst_assert(h->out);
    pst_assert(h->out_at == h->out_bytes);
    pst_assert(!h->work);
    answer_drop(h);
    h->is_known = h->no_body = false;
    h->answered = true;
    pace_begin(&h->pace, 0, pst_now_ns());
    if (!h->keep_alive) {
        shutdown(h->watch.fd, SHUT_WR);
        h->step = STEP_LINGER;
        return true;
    }
    pst_assert(h->head_bytes <= h->in_bytes);
    memmove(h->in, h->in + h->head_bytes, h->in_bytes - h->head_bytes);
    h->in_bytes -= h->head_bytes;
    h->looked_at = h->head_bytes = 0;
    h->head_began = h->in_bytes > 0;
    h->step = STEP_HEAD;
    return true;
}

static bool step_send(struct http *h)
{
    ssize_t n;

    pst_assert(h->out);
    pst_assert(h->out_at <= h->out_bytes);
    if (h->out_at == h->out_bytes)
        return sent(h);
    n = send(h->watch.fd, h->out + h->out_at, h->out_bytes - h->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            http_close(&h->party);
        return false;
    }
    h->out_at += (size_t)n;
    pst_assert(h->out_at <= h->out_bytes);
    pace_moved(&h->pace, (size_t)n, pst_now_ns());
    return true;
}

/* A socket that is closed with bytes unread takes back what it sent: they are read, up to a bound. */
static bool step_linger(struct http *h)
{
    char nowhere[READ_BYTES];
    ssize_t n = receive(h, nowhere, sizeof(nowhere), 0);

    pst_assert(!h->out);
    if (ended(h, n) || n < 0)
        return false;
    h->lingered += (size_t)n;
    if (h->lingered > LINGER_BYTES) {
        http_close(&h->party);
        return false;
    }
    return true;
}

/* Whether the next step is for what has been read: the socket would not tell of that. */
static bool has_read(const struct http *h)
{
    return (h->step == STEP_HEAD && h->in_bytes > h->looked_at) ||
           (h->step == STEP_BODY && h->body.bytes == h->head.body_bytes);
}

static void http_step(struct http *h)
{
    static bool (*const steps[])(struct http *) = {
        [STEP_FIRST] = step_first, [STEP_HEAD] = step_head,     [STEP_BODY] = step_body,
        [STEP_SEND] = step_send,   [STEP_LINGER] = step_linger,
    };
    int left = STEPS_A_ROUND; /* then others first: the socket says again that it has something */
    bool more = h->step != STEP_ANSWER && h->step != STEP_CLOSED;

    while (more) {
        more = steps[h->step](h) && h->step != STEP_ANSWER && h->step != STEP_CLOSED;
        if (--left <= 0 && !has_read(h))
            break;
    }
    if (h->step == STEP_CLOSED)
        return;
    watch_set(h->party.web, &h->watch,
              h->step == STEP_ANSWER ? 0
              : h->step == STEP_SEND ? EPOLLOUT
                                     : EPOLLIN);
}

static void http_ready(struct pst_web *web, struct watch *watch, uint32_t events)
{
    struct http *h = http_cast(watch->party);

    (void)web;
    if (h->step == STEP_ANSWER && events & (EPOLLHUP | EPOLLERR)) {
        http_close(&h->party); /* nobody to answer to */
        return;
    }
    http_step(h);
}

void http_open(struct pst_web *web, int fd, const char *peer, bool loopback, struct party *around)
{
    static const struct party_ops ops = {
        .tick = http_tick, .yields = http_yields, .close = http_close, .free = http_free};
    struct http *h = calloc(1, sizeof(*h));

    if (!h) {
        close(fd);
        return;
    }
    party_open(&h->party, &ops, web);
    watch_init(&h->watch, &h->party, http_ready);
    snprintf(h->peer, sizeof(h->peer), "%s", peer);
    h->loopback = loopback;
    h->step = around ? STEP_HEAD : STEP_FIRST;
    if (around) {
        party_enclose(&h->party, around);
    } else {
        h->party.seated = true;
        web->connections++;
        pst_assert(web->connections <= web->connections_max);
    }
    pace_begin(&h->pace, 0, pst_now_ns());
    if (watch_open(web, &h->watch, fd, EPOLLIN) < 0)
        http_close(&h->party);
}
