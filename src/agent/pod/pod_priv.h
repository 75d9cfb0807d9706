/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pod_priv.h: the agent's parts. Each connection has a thread, which reads one frame, answers it and ends.
 *
 *     pod.c      opens and closes the parts, sweeps
 *     socket.c   the two sockets and their connections, frames as bytes
 *     frames.c   what a frame asks for: a table of commands
 *     offers.c   paths that this pod serves, and whose they are
 *     data.c     paths by their own names, for clients of kubetorch
 *     owner.c    processes that own what is served
 *     tensors.c  tensors of this pod's processes: where they lie, and whose they are (tensors_priv.h)
 *     tensor_frames.c  the commands on them
 *     casts.c    tensors that other pods may receive (casts_priv.h)
 *     gathering.c  tensors become a broadcast's files (gathering_priv.h)
 *     receptions.c  tensors that come from other pods
 *     cast_frames.c  the commands on both
 *     rounds.c   groups that move tensors, this pod's part (rounds_priv.h)
 *     round_frames.c  the command on them
 *     finished.c trees of broadcasts that lie here, and those who wait for one
 */
#ifndef PST_AGENT_POD_PRIV_H
#define PST_AGENT_POD_PRIV_H

#include "agent/pod.h"
#include "base/list.h"
#include "files/group/tree.h"
#include "files/key.h"
#include "files/rsync/front.h"
#include "files/rsync/rsyncd.h"
#include "net/acceptor.h"
#include "net/handshake.h"
#include "http/json.h"

#include <limits.h>
#include <pthread.h>

enum {
    POD_FRAME_BYTES_MAX = 16 << 20,
    POD_FDS_MAX = 4 * 253, /* SCM_MAX_FD with each byte of a frame's length */
    POD_LOCAL_MAX = 128,   /* connections of this pod's processes, */
    POD_REMOTE_MAX = 384,  /* and of other pods, which cannot keep those out */
    POD_STALL_MS = 10000,  /* a frame takes no longer to come, nor an answer to go */
    POD_SWEEP_MS = 5000,
    POD_OFFERS_MAX = 4096,
    POD_FINISHED_MAX = 4096,
    POD_FINISHED_LIFE_MS = 3600 * 1000, /* after its last use */
    POD_WAIT_MS_MAX = 3600 * 1000,
    POD_MODULE_BYTES = 24,
};

_Static_assert((int)POD_MODULE_BYTES <= (int)PST_RSYNCD_NAME_BYTES_MAX, "an offer's module has a name");
_Static_assert(2 * (int)POD_OFFERS_MAX <= (int)PST_RSYNCD_MODULES_MAX,
               "each offer, and its twin, has a module");

/* The listeners. */
enum { POD_LOCAL, POD_REMOTE }; /* the unix socket: of processes of this pod; TCP */

struct pst_pod {
    const struct pst_pod_settings *settings;
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
    struct pst_boot_address unix_address, tcp_address;
    uint64_t unix_inode;
    int unix_fd, tcp_fd; /* they listen */
    char rsync_host[16]; /* "" all addresses */
    char token[PST_RSYNCD_TOKEN_BYTES_MAX];
    uint32_t token_bytes; /* 0: none is needed */
    struct pst_acceptor *acceptor;
    int stop_fd;
    pthread_t sweeper;
    bool sweeps;

    pthread_mutex_t offers_lock; /* of the rsync daemon's start, too */
    struct pst_list offers;
    uint32_t offer_count;
    struct pst_rsyncd *rsyncd; /* NULL: nothing was offered yet */
    char rsyncd_folder[PATH_MAX];
    bool serves_data;              /* there is an agent_data_port; stays as it is once that is open */
    struct pst_rsync_front *front; /* of it */

    struct pod_tensors *tensors;
    struct pod_casts *casts;
    struct pod_receptions *receptions;
    struct pod_rounds *rounds;

    pthread_mutex_t finishing_lock; /* a tree and its offer come and go together; taken before the others */
    pthread_mutex_t finished_lock;
    pthread_cond_t finished_changed;
    struct pst_list finished;
    uint32_t finished_count;
    bool stopping; /* nobody waits any more */
};

/* ---- owner.c ---- */

struct owner {
    pid_t pid; /* 0: nobody */
    uint64_t began;
};

/* Return: 0, -ESRCH no such process, or -errno, with a text in @fault. */
int owner_of(pid_t pid, struct owner *owner, char fault[PST_FAULT_BYTES]);
bool owner_is(const struct owner *a, const struct owner *b);
/* Nobody lives. Without descriptors nothing can be said of a process: it lives until something is. */
bool owner_lives(const struct owner *owner);

/* ---- offers.c ---- */

/* Where clients find a path that is offered. */
struct pod_place {
    uint16_t rsync_port;
    char rsync_path[POD_MODULE_BYTES + NAME_MAX + 1]; /* "MODULE", of a file "MODULE/NAME" */
};

/*
 * Offers @path, absolute, under @key (@named: a folder that has it under its name) until @pid ends (0: until
 * it is withdrawn). Return: 0 and *@place. -EEXIST: another living process offers something else under @key.
 * -EINVAL: @path is not absolute, or has "..". -EACCES: it may never be offered. -ELOOP: a link. -ESRCH: no
 * such process. -ENOSPC: too many. Otherwise what the file system or rsync said; -errno with a text in
 * @fault.
 */
int offers_add(struct pst_pod *pod, const char *key, const char *path, bool named, pid_t pid,
               struct pod_place *place, char fault[PST_FAULT_BYTES]);
/* @pid: 0 or its owner's. Return: 1, 0 nothing was offered there, -EPERM it is another process's. */
int offers_remove(struct pst_pod *pod, const char *key, pid_t pid);
/* An array of what is offered, for `list_keys`. NULL without memory. */
struct pst_json *offers_list(struct pst_pod *pod);
/* Withdraws what belongs to processes that have ended. */
void offers_sweep(struct pst_pod *pod);
/* Starts the rsync daemon if it does not run. Return: its port, or -errno. */
int offers_rsync_port(struct pst_pod *pod);
/* Where the daemon serves @path, without its first '/': "MODULE/PATH", or POD_NOTHING and @path. */
void offers_place_of(struct pst_pod *pod, const char *path, char place[PST_RSYNC_FRONT_PLACE_BYTES]);
void offers_close(struct pst_pod *pod);

/* ---- data.c ---- */

/* The module without anything in it. */
#define POD_NOTHING "nothing"

/* Opens agent_data_port, if there is to be one. Return: 0, or -errno with the reason in @fault. */
int data_open(struct pst_pod *pod, char fault[PST_FAULT_BYTES]);
void data_close(struct pst_pod *pod);

/* ---- socket.c ---- */

/* Who asks. */
struct pod_caller {
    int fd;
    bool local; /* over the unix socket */
    pid_t pid;  /* 0: not known */
};

/* Whether nobody reads the answer any more. */
bool caller_is_gone(const struct pod_caller *caller);
/* Return: 0, or -errno with the reason in @fault; to be closed either way. */
int sockets_open(struct pst_pod *pod, char fault[PST_FAULT_BYTES]);
/* Ends every connection, and waits for their threads. */
void sockets_close(struct pst_pod *pod);

/* ---- finished.c ---- */

/* The tree of @group's broadcast of @key lies whole at @path. Return: as offers_add(). */
int finished_add(struct pst_pod *pod, const char *group, const char *key, const char *path,
                 char fault[PST_FAULT_BYTES]);
/* Waits for it. Return: 0, *@place and the path in @path; -ETIMEDOUT; -ECANCELED the agent ends, or the
 * caller is gone. */
int finished_wait(struct pst_pod *pod, const struct pod_caller *caller, const char *group, const char *key,
                  uint64_t timeout_ms, struct pod_place *place, char path[PATH_MAX]);
void finished_sweep(struct pst_pod *pod);
/* Those who wait are told that the agent ends. */
void finished_stop(struct pst_pod *pod);
void finished_close(struct pst_pod *pod);

/* ---- frames.c ---- */

/* Descriptors that come with a frame, or go with its answer. */
struct pod_fds {
    uint32_t count;
    int fds[POD_FDS_MAX];
};

void fds_close(struct pod_fds *fds);
/* A copy of @fd, once for each memory: @memories has the numbers of those that @fds has. Return: its place in
 * @fds; -E2BIG: no place is left; -errno. */
int fds_keep(struct pod_fds *fds, uint64_t memories[POD_FDS_MAX], int fd, uint64_t memory);
/* Answers the frame @text. @came is borrowed; @go has none, and is the caller's to close. Return: JSON,
 * malloc()ed; NULL without memory. */
char *frames_answer(struct pst_pod *pod, const struct pod_caller *caller, struct pst_bytes text,
                    const struct pod_fds *came, struct pod_fds *go);

#endif
