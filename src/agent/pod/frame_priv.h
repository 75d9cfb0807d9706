/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame_priv.h: a frame that is being answered. Of those who answer: frames.c, tensor_frames.c,
 * cast_frames.c, round_frames.c. A command returns 0, or -errno with a text in the frame's fault or none.
 */
#ifndef PST_AGENT_FRAME_PRIV_H
#define PST_AGENT_FRAME_PRIV_H

#include "agent/pod/tensors_priv.h"
#include "gpu/place.h"

struct pod_reception;

struct frame {
    struct pst_pod *pod;
    const struct pod_caller *caller;
    const struct pst_json *asked;
    const struct pod_fds *came;
    struct pst_json *answer; /* {"status":"ok"}, to which a command adds */
    struct pod_fds *go;
    char fault[PST_FAULT_BYTES];
};

/* ---- frames.c ---- */

/* The key that a member of @object says. Return: 0, or -errno with a text in the fault. */
int frame_key_of(struct frame *frame, const struct pst_json *object, const char *name, char key[PST_KEY_CAP]);
/* The group that the frame names; NULL: it cannot be one. */
const char *frame_group(struct frame *frame);
/* Its "timeout", of @seconds if it has none, and of POD_WAIT_MS_MAX at the most. */
int frame_timeout(struct frame *frame, double seconds, uint64_t *timeout_ms);
/* The process that asks, unless the frame names another one. */
int frame_pid(struct frame *frame, pid_t *pid);

/* ---- tensor_frames.c ---- */

int frame_put_tensor(struct frame *frame);
int frame_get_tensor(struct frame *frame);
/* `register` of a tensor: put_tensor's members of one. */
int frame_register_tensor(struct frame *frame);
/* Withdraws what lies under @key, and all below it if the frame says "recursive". Return: how many, -EPERM.
 */
int frame_unregister_tensor(struct frame *frame, const char *key, pid_t pid);
/* Adds all to an array, for `list_keys`. */
int frame_list_tensors(struct frame *frame, struct pst_json *keys);
/* Whose the tensors are that the frame puts. */
int frame_owner(struct frame *frame, struct owner *owner);
/* Tensors of an array, each with its key and its memory among the frame's descriptors; all below @below,
 * which is borrowed, "" anywhere. The batch is to be freed, in failure too. */
int frame_parse_tensors(struct frame *frame, const struct pst_json *tensors, const struct owner *owner,
                        const char *below, struct pod_batch *batch);

/* Tensors on their way into an answer, or to another pod. */
struct shown {
    struct pst_json *tensors;
    struct pod_fds *go;             /* descriptors of their memory, each once */
    uint64_t memories[POD_FDS_MAX]; /* the numbers of those memories */
};

/* A visit of each. */
int shown_add(void *shown, const struct pod_tensor *tensor, int fd, uint64_t memory);
/* The second step of that, after fds_keep(). */
int shown_print(struct shown *shown, const struct pod_tensor *tensor, uint32_t descriptor);

/* Where it lies, without the descriptor of its memory. */
void tensor_place(const struct pod_tensor *tensor, struct pst_gpu_place *place);

/* Where a tensor lies as the handle @handle says, on @device or the first GPU, of the "shape" and "dtype" of
 * @object. @place borrows its descriptor. */
int frame_parse_place(struct frame *frame, const char *key, const struct pst_json *handle,
                      const struct pst_json *device, const struct pst_json *object,
                      struct pst_gpu_place *place);
/* Whether the "shape" and "dtype" of @object, if it has them, are a tensor's. */
int frame_check_said(struct frame *frame, const char *key, const struct pst_json *object,
                     const struct pst_gpu_tensor *layout);

/* ---- cast_frames.c ---- */

int frame_serve_broadcast(struct frame *frame);
int frame_receive_broadcast(struct frame *frame);
/* The tensors that have come, as frame_parse_tensors(), each with its memory among the reception's. */
int frame_parse_received(const struct frame *frame, const struct pod_reception *reception,
                         const struct owner *owner, const char *below, struct pod_batch *batch,
                         char fault[PST_FAULT_BYTES]);

/* ---- round_frames.c ---- */

int frame_execute_group(struct frame *frame);

#endif
