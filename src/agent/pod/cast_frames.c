/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_frames.c: commands on tensors between pods. Who asks for a broadcast gets the tensors as it would by
 * `get_tensor`; what the other pod says of them is checked as what a process of this pod puts.
 */
#include "agent/pod/casts_priv.h"
#include "agent/pod/frame_priv.h"

#include <arpa/inet.h>
#include <stdio.h>

#define RECEIVE_S 30.0 /* without a piece, of a `receive_broadcast` that does not say */

int frame_serve_broadcast(struct frame *frame)
{
    const struct pst_json *said = pst_json_get(frame->asked, "group_id");
    const char *group = said && !pst_json_is_null(said) ? frame_group(frame) : "";
    char key[PST_KEY_CAP];
    uint16_t port = 0;
    int r = group ? frame_key_of(frame, frame->asked, "state_dict", key) : -EINVAL;

    if (r == 0)
        r = casts_serve(frame->pod, group, key, &port, frame->fault);
    if (r == 0)
        r = pst_json_add_text(frame->answer, "state_dict", key);
    return r < 0 ? r : pst_json_add_integer(frame->answer, "port", port);
}

/* ---- receive_broadcast ---- */

static int order_source(struct frame *frame, struct pod_order *order)
{
    const char *ip = pst_json_text(pst_json_get(frame->asked, "ip"));
    const struct pst_json *size = pst_json_get(frame->asked, "world_size");
    int64_t port = 0, members = 0;
    struct in_addr numeric;

    if (!ip || inet_pton(AF_INET, ip, &numeric) != 1 || strlen(ip) > PST_CHAIN_HOST_BYTES_MAX ||
        !pst_json_integer(pst_json_get(frame->asked, "port"), &port) || port < 1 || port > UINT16_MAX) {
        snprintf(frame->fault, sizeof(frame->fault), "'ip' and 'port' must say where the source serves");
        return -EINVAL;
    }
    if (size && !pst_json_is_null(size) &&
        (!pst_json_integer(size, &members) || members < 0 || members > PST_CHAIN_MEMBERS_MAX)) {
        snprintf(frame->fault, sizeof(frame->fault), "'world_size' must be 0 to %d", PST_CHAIN_MEMBERS_MAX);
        return -EINVAL;
    }
    snprintf(order->host, sizeof(order->host), "%s", ip);
    order->port = (uint16_t)port;
    order->members = (uint32_t)members;
    return 0;
}

static int order_of(struct frame *frame, struct pod_order *order)
{
    const char *group = frame_group(frame);
    uint64_t timeout_ms = 0;
    int r;

    pst_assert(frame->caller->local);
    r = group ? frame_key_of(frame, frame->asked, "state_dict", order->key) : -EINVAL;

    if (r == 0)
        r = frame_timeout(frame, RECEIVE_S, &timeout_ms);
    if (r == 0)
        r = order_source(frame, order);
    if (r < 0)
        return r;
    snprintf(order->group, sizeof(order->group), "%s", group);
    order->timeout_ms = (uint32_t)pst_max(timeout_ms, 1);
    return 0;
}

/* Puts them into the table, unless another process of this pod has something there. */
static int register_received(struct frame *frame, struct pod_batch *batch, const struct pod_fds *memories)
{
    int r = tensors_put(frame->pod, batch, memories, frame->fault);

    if (r == 0 || r == -EEXIST)
        frame->fault[0] = 0;
    pst_assert(r <= 0);
    return r == 0 || r == -EEXIST ? pst_json_add_flag(frame->answer, "registered", r == 0) : r;
}

/* All of the batch, with their memories, for the answer. */
static int answer_received(struct frame *frame, const struct pod_batch *batch, const struct pod_fds *memories)
{
    struct shown shown = {.go = frame->go, .tensors = pst_json_new_array()};
    int r = shown.tensors ? 0 : -ENOMEM;

    for (uint32_t i = 0; r == 0 && i < batch->count; i++) {
        uint32_t descriptor = batch->tensors[i]->handle.descriptor;

        pst_assert(descriptor < memories->count);
        r = shown_add(&shown, batch->tensors[i], memories->fds[descriptor], descriptor);
    }
    if (r < 0) {
        pst_json_free(shown.tensors);
        return r;
    }
    return pst_json_add(frame->answer, "tensors", shown.tensors);
}

static int check_received(struct frame *frame, const struct pod_batch *batch)
{
    pst_assert(batch->count > 0);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->tensors[i]->handle.kind == PST_GPU_HOST)
            continue;
        snprintf(frame->fault, sizeof(frame->fault), "tensor '%.100s' lies on a device of the other pod",
                 batch->tensors[i]->key);
        return -EXDEV;
    }
    return 0;
}

int frame_parse_received(const struct frame *frame, const struct pod_reception *reception,
                         const struct owner *owner, const char *below, struct pod_batch *batch,
                         char fault[PST_FAULT_BYTES])
{
    struct frame received = *frame;
    struct pst_json *table = NULL;
    const char *why = NULL;
    int r = pst_json_parse_answer(reception_table(reception), &table, &why);

    received.came = reception_memories(reception);
    received.fault[0] = 0;
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "what has come are no tensors: %s", why);
        return -EBADMSG;
    }
    r = frame_parse_tensors(&received, table, owner, below, batch);
    if (r == 0)
        r = check_received(&received, batch);
    if (r < 0)
        memcpy(fault, received.fault, PST_FAULT_BYTES);
    pst_json_free(table);
    return r;
}

static bool nobody_waits(void *ctx)
{
    return caller_is_gone(((const struct frame *)ctx)->caller);
}

static int take_received(struct frame *frame, const char *key, struct pod_reception *reception)
{
    const struct pod_fds *memories = reception_memories(reception);
    struct pod_batch batch = {0};
    struct owner owner;
    int r = frame_owner(frame, &owner);

    pst_assert(memories->count <= POD_FDS_MAX);
    if (r == 0)
        r = frame_parse_received(frame, reception, &owner, key, &batch, frame->fault);
    if (r == 0)
        r = answer_received(frame, &batch, memories);
    if (r == 0 && reception_claim(frame->pod, reception))
        r = register_received(frame, &batch, memories);
    tensors_free(&batch);
    return r;
}

int frame_receive_broadcast(struct frame *frame)
{
    struct pod_reception *reception = NULL;
    const struct pod_patience patience = {nobody_waits, frame};
    struct pod_order order = {.port = 0};
    int r = order_of(frame, &order);

    if (r == 0)
        r = receptions_await(frame->pod, &patience, &order, &reception, frame->fault);
    if (r < 0)
        return r;
    pst_assert(reception);
    r = take_received(frame, order.key, reception);
    reception_drop(frame->pod, reception);
    return r < 0 ? r : pst_json_add_text(frame->answer, "state_dict", order.key);
}
