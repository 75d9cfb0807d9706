/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h: pods that exchange tensors of their devices' memory in one round. An exchange is a group that
 * pods join by its name, as putters or getters; each has a list of tensors. The docs call it a group, and its
 * members participants. It waits until its window closes,
 * then its members stay as they are, `exchange_plan.h` says who sends what, and it ends once all members
 * have completed, or one has failed. Who joins the name of one that has closed opens another.
 *
 *     waiting --window--> closed --begin()--> ready --all have completed--> ended
 *        |                   `------------------`-------a fault-------------^
 *        `-- its last member leaves: gone
 *
 * Pure: no clock, no network, no JSON. One caller at a time. Beside it another thread may read a closed
 * exchange's name, number and counts, and its members' addresses and tensors: these do not change until
 * pst_exchange_forget(). Time is handed in, in ms; texts are borrowed during calls. Source:
 * docs/reference/data-store.md, broadcasts of tensors.
 */
#ifndef PST_FILES_EXCHANGE_H
#define PST_FILES_EXCHANGE_H

#include "base/list.h"
#include "files/catalogue/catalogue.h"

enum {
    PST_EXCHANGES_MAX = 1024,
    PST_EXCHANGE_MEMBERS_MAX = 4096,
    PST_EXCHANGE_TENSORS_MAX = 4096, /* of a member */
    PST_EXCHANGE_DIMENSIONS_MAX = 16,
    PST_EXCHANGE_DTYPE_BYTES_MAX = 64,
    PST_EXCHANGE_HANDLE_BYTES_MAX = 4096,
    PST_EXCHANGE_GROUP_BYTES_MAX = 1024,
    PST_EXCHANGE_NAME_BYTES_MAX = PST_NAME_BYTES_MAX + 1 + PST_EXCHANGE_GROUP_BYTES_MAX,
    PST_EXCHANGES_BYTES_MAX = 64 << 20, /* all that is kept */
};

enum {
    PST_EXCHANGE_TIMEOUT_MS_MAX = 24 * 3600 * 1000,
    PST_EXCHANGE_LIFE_MS = 600 * 1000, /* of one that is ready, if its window has no timeout */
    PST_EXCHANGE_BEAT_MS = 10 * 1000,
    PST_EXCHANGE_SILENCE_MS = 70 * 1000, /* then one that waits is taken out */
};

/* Ports on which rank 0 of exchanges that follow each other listens, so that two of one pod do not meet. Behind
 * those of torch.distributed, and of kubetorch's clients. */
enum { PST_EXCHANGE_PORT = 29700, PST_EXCHANGE_PORT_COUNT = 1000 };

struct pst_exchange_tensor {
    const char *key;       /* normal, the same for all */
    const char *given_key; /* as the pod itself knows it */
    const char *dtype;
    const char *handle; /* where a getter's lies, as it is to be handed back; or NULL */
    const int64_t *shape;
    uint32_t dimension_count;
};

/* Who joins; @timeout_ms and @world_size are the window if it is the first, 0: not set. */
struct pst_exchange_joiner {
    const char *ip, *pod_name; /* @pod_name: NULL as "" */
    bool is_putter;
    uint64_t timeout_ms; /* after the first has joined */
    uint32_t world_size; /* so many members */
    const struct pst_exchange_tensor *tensors;
    uint32_t tensor_count;
    void *owner; /* the caller's */
};

enum pst_exchange_state {
    PST_EXCHANGE_WAITING,
    PST_EXCHANGE_CLOSED, /* nobody has been told what to send yet */
    PST_EXCHANGE_READY,
    PST_EXCHANGE_ENDED,
};

/* What follows is read, and changed by the calls below alone. */
struct pst_exchange_member {
    struct pst_list link; /* in the order of joining */
    struct pst_exchange *exchange;
    void *owner; /* NULL: it has left */
    const char *ip, *pod_name;
    bool is_putter;
    bool is_first; /* of its pod */
    bool completed;
    uint64_t heard_ms;
    const struct pst_exchange_tensor *tensors;
    uint32_t tensor_count;
    size_t bytes; /* that it takes */
};

struct pst_exchange {
    struct pst_list link;
    struct pst_exchanges *all;
    uint64_t number; /* of one that has closed: they are counted from 0 */
    const char *name;
    enum pst_exchange_state state;
    struct pst_list members;
    uint32_t putters, getters, completed;
    uint64_t begun_ms, beat_ms, ends_ms;
    uint64_t timeout_ms;
    uint32_t world_size;
    bool failed; /* it has ended, and not because all have completed */
    char *fault; /* why; NULL there was no memory to say it */
    size_t bytes;
};

struct pst_exchanges;

/* Return: NULL without memory. */
struct pst_exchanges *pst_exchanges_open(void);
/* Returns NULL. */
struct pst_exchanges *pst_exchanges_close(struct pst_exchanges *all);

/*
 * Joins the exchange @name that waits, or opens it; with the last one that it waits for it closes. Return: 0
 * and *@out, which lives until the member leaves or is taken out while its exchange waits, or until that is
 * forgotten. With *@fault, a static text that says why not: -EINVAL what it says cannot be, -ENOSPC too many
 * members, exchanges, or bytes, -ENOMEM.
 */
int pst_exchange_join(struct pst_exchanges *all, const char *name, const struct pst_exchange_joiner *joiner,
                      uint64_t now_ms, struct pst_exchange_member **out, const char **fault);
/* It is there and speaks. */
void pst_exchange_hear(struct pst_exchange_member *member, uint64_t now_ms);
/* Nothing is heard of it any more: if it has not completed, an exchange that has closed fails. */
void pst_exchange_leave(struct pst_exchange_member *member);
/* It has what it came for, or could not get it. Return: 0, also if the exchange has ended; -EAGAIN it is not
 * ready, -EALREADY the member has said so before. */
int pst_exchange_complete(struct pst_exchange_member *member, bool success);

/* The members of one that has closed have been told what to send. */
void pst_exchange_begin(struct pst_exchange *exchange, uint64_t now_ms);
/* Ends one that has closed, and not ended. */
void pst_exchange_fail(struct pst_exchange *exchange, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Frees one that has ended, and its members. */
void pst_exchange_forget(struct pst_exchange *exchange);

typedef void pst_exchange_each(void *arg, struct pst_exchange_member *member);

/*
 * Does what is due by now: windows close, exchanges that are ready run out of time, @on_silent is called for
 * each member that is taken out, and @on_beat for those that are to hear that the store is there. Return:
 * when to look again, in ms; UINT64_MAX: not before another call.
 */
uint64_t pst_exchanges_look(struct pst_exchanges *all, uint64_t now_ms, pst_exchange_each *on_beat,
                            pst_exchange_each *on_silent, void *arg);
/* The one longest in @state, by its opening; NULL: none. */
struct pst_exchange *pst_exchanges_find(struct pst_exchanges *all, enum pst_exchange_state state);
/* In the order of opening; NULL: from the beginning, or no more. */
struct pst_exchange *pst_exchanges_next(struct pst_exchanges *all, const struct pst_exchange *before);
/* What is kept, of PST_EXCHANGES_BYTES_MAX. */
size_t pst_exchanges_bytes(const struct pst_exchanges *all);

#endif
