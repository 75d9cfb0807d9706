/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secure.c: the server's side of TLS: one port takes plain clients and those that speak TLS, told apart by
 * their first byte. Until TLS stands, nothing else that the client says is looked at.
 */
#include "net/handshake/server_priv.h"

#include "net/tls/tls.h"

#include <stdio.h>
#include <sys/socket.h>

_Static_assert(sizeof(((struct boot_conn *)0)->binding) == PST_TLS_BINDING_BYTES, "room for a binding");

bool boot_secure_not(struct boot_conn *conn)
{
    pst_assert(!conn->channel);
    pst_assert(!conn->started);
    if (stream_channel_plain(conn->fd, &conn->channel) < 0)
        return false;
    conn->started = true;
    return true;
}

bool boot_secure_excuses(const struct boot_conn *conn)
{
    const struct pst_boot_server_options *options = &conn->server->options;

    pst_assert(!conn->secured);
    return conn->unix_socket || !options->tls || options->plain == PST_BOOT_PLAIN_ANYBODY ||
           (options->plain == PST_BOOT_PLAIN_LOOPBACK && conn->loopback);
}

/* A node without TLS says so in a frame that its clients understand. */
static void secure_decline(struct boot_conn *conn)
{
    ssize_t n =
        recv(conn->fd, conn->in, sizeof(conn->in), 0); /* closing over unread bytes would take it back */

    (void)n;
    pst_assert(conn->started);
    pst_assert(!conn->server->options.tls);
    boot_session_refuse(conn, BOOT_REFUSED_NO_TLS, "it speaks TLS, which the node has not been given");
}

/* Return: whether the client has said what it speaks. */
static bool secure_recognize(struct boot_conn *conn)
{
    struct pst_tls *tls = conn->server->options.tls;
    bool good, wants_tls;
    uint8_t first;
    ssize_t n;

    do
        n = recv(conn->fd, &first, 1, MSG_PEEK);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        conn->ending = "connection closed";
        return false;
    }
    wants_tls = first == PST_TLS_FIRST_BYTE && !conn->unix_socket;
    conn->secured = wants_tls && tls;
    good = conn->secured ? pst_tls_channel(tls, conn->fd, NULL, &conn->channel) == 0 : boot_secure_not(conn);
    if (!good)
        conn->ending = "out of memory";
    else if (wants_tls && !tls)
        secure_decline(conn);
    return !conn->ending;
}

void boot_secure_failed(struct boot_conn *conn)
{
    static const enum pst_boot_refusal kinds[] = {
        [PST_TLS_FAULT_EXPIRED] = PST_BOOT_REFUSED_EXPIRED,
        [PST_TLS_FAULT_CERTIFICATE] = PST_BOOT_REFUSED_CERTIFICATE,
        [PST_TLS_FAULT_SECRET] = PST_BOOT_REFUSED_SECRET,
        [PST_TLS_FAULT_REPLAYED] = PST_BOOT_REFUSED_REPLAYED,
        [PST_TLS_FAULT_TURNED_DOWN] = PST_BOOT_REFUSED_BY_CLIENT,
        [PST_TLS_FAULT_PROTOCOL] = PST_BOOT_REFUSED_TLS,
    };
    const char *text;
    enum pst_tls_fault fault = pst_tls_channel_fault(conn->channel, &text);

    pst_assert(conn->secured);
    pst_assert(fault != PST_TLS_FAULT_NONE);
    snprintf(conn->why, sizeof(conn->why), "%s", text);
    if (!conn->welcomed && fault != PST_TLS_FAULT_ENDED)
        boot_server_refused(conn, kinds[fault], conn->why);
    conn->ending = conn->why;
}

bool boot_secure_step(struct boot_conn *conn)
{
    const char *fault = "";
    int r;

    pst_assert(!conn->started);
    pst_assert(!conn->ending);
    pst_assert(!conn->welcomed);
    if (!conn->channel && !secure_recognize(conn))
        return false;
    if (conn->started)
        return true;
    r = stream_channel_start(conn->channel, &fault);
    if (r == -EAGAIN)
        return false;
    if (r < 0) {
        boot_secure_failed(conn);
        return false;
    }
    conn->started = pst_tls_channel_binding(conn->channel, conn->binding) == 0;
    if (!conn->started)
        conn->ending = "out of memory";
    return conn->started;
}
