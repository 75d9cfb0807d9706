/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.c: messages that wait, and which sockets still have one. */
#include "agent/store/inbox_priv.h"

#include "base/clock.h"

void inbox_init(struct inbox *inbox, uint32_t each_max)
{
    pst_assert(each_max > 0);
    *inbox = (struct inbox){.each_max = each_max};
    pst_list_init(&inbox->messages);
}

int inbox_put(struct inbox *inbox, struct pod_socket *socket, struct pst_bytes text)
{
    struct inbox_message *message;

    pst_assert(!socket->closed);
    pst_assert(socket->waiting <= inbox->each_max);
    if (socket->waiting == inbox->each_max ||
        (text.len > INBOX_SMALL_BYTES && inbox->bytes + text.len > INBOX_BYTES_MAX))
        return -EBUSY;
    message = malloc(sizeof(*message) + text.len);
    if (!message)
        return -ENOMEM;
    if (text.len)
        memcpy(message + 1, text.data, text.len);
    message->socket = socket;
    message->came_ms = pst_now_ms();
    message->text = (struct pst_bytes){message + 1, text.len};
    pst_list_push_back(&inbox->messages, &message->link);
    inbox->bytes += text.len;
    socket->waiting++;
    return 0;
}

uint64_t inbox_ms(const struct inbox *inbox)
{
    if (pst_list_empty(&inbox->messages))
        return pst_now_ms();
    return pst_list_first(&inbox->messages, struct inbox_message, link)->came_ms;
}

struct inbox_message *inbox_take(struct inbox *inbox)
{
    struct inbox_message *message;

    if (pst_list_empty(&inbox->messages))
        return NULL;
    message = pst_list_first(&inbox->messages, struct inbox_message, link);
    pst_list_remove(&message->link);
    pst_assert(inbox->bytes >= message->text.len);
    inbox->bytes -= message->text.len;
    return message;
}

void inbox_done(struct inbox_message *message)
{
    struct pod_socket *socket = message->socket;

    pst_assert(socket->waiting > 0);
    if (--socket->waiting == 0 && socket->closed)
        free(socket);
    free(message);
}

void inbox_close(struct pod_socket *socket)
{
    pst_assert(!socket->closed);
    socket->closed = true;
    if (socket->waiting == 0)
        free(socket);
}
