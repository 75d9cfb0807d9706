/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_rig.h: a web server on a loopback port, and clients on plain sockets: requests as text, WebSocket
 * frames by hand. Its owner answers with what it was asked, and sends back what its WebSockets say.
 */
#ifndef PST_TEST_WEB_RIG_H
#define PST_TEST_WEB_RIG_H

#include "lib/cm.h"

#include "base/clock.h"
#include "web/web.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    FRAME_MORE = 0x0,
    FRAME_TEXT = 0x1,
    FRAME_BINARY = 0x2,
    FRAME_CLOSE = 0x8,
    FRAME_PING = 0x9,
    FRAME_PONG = 0xa,
    FRAME_FINAL = 0x80,
};

struct web_rig {
    struct pst_web_settings settings;
    struct pst_web *web;
    _Atomic uint32_t answers, opens, messages, closes, lines, held;
    _Atomic bool hold; /* answers to /hold wait */
    _Atomic(struct pst_web_socket *) last;
};

/* Starts with @rig->settings; what is unset there is short of patience: 500 ms, longer in slow builds. */
void web_rig_open(struct web_rig *rig);
void web_rig_close(struct web_rig *rig);
/* A listening socket on loopback. */
int web_listen(uint16_t *port);
/* The server has no client within the time that a test waits. */
void web_wait_empty(struct web_rig *rig);
/* Until *@count is at least @least. */
void web_wait_count(_Atomic uint32_t *count, uint32_t least);

int web_connect(struct web_rig *rig);
void web_send(int fd, const void *data, size_t bytes);
void web_say(int fd, const char *text);
/* What comes until the end of the stream or @cap - 1 bytes, with a NUL. Return: the length. */
size_t web_read_all(int fd, char *buf, size_t cap);
/* One answer: head and body, whose length the head tells. Return: its status, 0: the end came instead. */
int web_read_answer(int fd, char *buf, size_t cap);
/* Connects, says, reads one answer. */
int web_ask(struct web_rig *rig, const char *request, char *buf, size_t cap);
/* Whether the other side ends the stream, or resets it, in the time that a test waits. */
bool web_ends(int fd);

/* Asks for a WebSocket. @more: fields, each with its line end. Return: a descriptor; *@status. */
int web_upgrade(struct web_rig *rig, const char *target, const char *more, int *status);
int web_upgrade_on(int fd, const char *target, const char *more);
/* @head: opcode, FRAME_FINAL or not. */
void web_frame(int fd, uint8_t head, const void *data, size_t bytes);
/* The next frame. Return: its first byte, or -1 at the end of the stream; *@bytes is at most @cap. */
int web_frame_read(int fd, void *buf, size_t cap, size_t *bytes);

#endif
