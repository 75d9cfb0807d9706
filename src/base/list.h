/* SPDX-License-Identifier: Apache-2.0 */
/* list.h: intrusive doubly linked lists with a head that is a node. The list never owns its members. */
#ifndef PST_LIST_H
#define PST_LIST_H

#include "base/base.h"

struct pst_list {
    struct pst_list *next, *prev;
};

static inline void pst_list_init(struct pst_list *l)
{
    l->next = l->prev = l;
}

static inline bool pst_list_empty(const struct pst_list *l)
{
    return l->next == l;
}

static inline void pst_list_insert(struct pst_list *after, struct pst_list *node)
{
    pst_assert(after->next->prev == after);
    pst_assert(node != after);
    node->prev = after;
    node->next = after->next;
    after->next->prev = node;
    after->next = node;
}

static inline void pst_list_push_front(struct pst_list *head, struct pst_list *node)
{
    pst_list_insert(head, node);
}

static inline void pst_list_push_back(struct pst_list *head, struct pst_list *node)
{
    pst_list_insert(head->prev, node);
}

/* Removing a node twice is harmless: it points at itself afterwards. */
static inline void pst_list_remove(struct pst_list *node)
{
    pst_assert(node->prev->next == node);
    pst_assert(node->next->prev == node);
    node->prev->next = node->next;
    node->next->prev = node->prev;
    pst_list_init(node);
}

/* Moves all of @from's members to the end of @to. */
static inline void pst_list_splice(struct pst_list *to, struct pst_list *from)
{
    if (pst_list_empty(from))
        return;
    pst_assert(to != from);
    pst_assert(to->prev->next == to);
    pst_assert(from->prev->next == from);
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    pst_list_init(from);
}

#define pst_list_entry(node, type, member) pst_container_of(node, type, member)
#define pst_list_first(head, type, member) pst_list_entry((head)->next, type, member)
#define pst_list_each(it, head)            for (struct pst_list *it = (head)->next; it != (head); it = it->next)
#define pst_list_each_safe(it, head)                                                                         \
    for (struct pst_list *it = (head)->next, *it##_next = it->next; it != (head);                            \
         it = it##_next, it##_next = it->next)

#endif
