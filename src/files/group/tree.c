/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: trees of broadcasts: members in the order of their ranks, and a table from address to rank. */
#include "files/group/tree.h"

#include "base/hash.h"
#include "base/list.h"
#include "files/group/pod_priv.h"

enum { ROOM_MIN = 16 };

struct member {
    char ip[PST_IP_BYTES_MAX + 1];
    char *pod_name;
    uint32_t parent;   /* its rank */
    uint32_t reporter; /* the rank of the first who could not reach it; 0: nobody */
    bool lost;
};

struct tree {
    struct pst_list link;
    char *group;
    void *key;
    size_t key_bytes;
    uint32_t fanout, lost;
    struct member source; /* rank 0 */
    char *source_path;
    struct member *members; /* rank 1 is the first */
    uint32_t count, room;
    uint32_t *ranks; /* by the hash of the address, 2 * room of them; 0: empty */
    uint64_t used_ms;
};

struct pst_trees {
    struct pst_list all;
    uint32_t count;
    uint64_t seed;
};

struct pst_trees *pst_trees_open(void)
{
    struct pst_trees *trees = calloc(1, sizeof(*trees));

    if (!trees)
        return NULL;
    pst_list_init(&trees->all);
    pst_random(&trees->seed, sizeof(trees->seed));
    return trees;
}

static void tree_free(struct pst_trees *trees, struct tree *tree)
{
    pst_assert(trees->count > 0);
    pst_assert(tree->lost <= tree->count);
    trees->count--;
    pst_list_remove(&tree->link);
    for (uint32_t i = 0; i < tree->count; i++)
        free(tree->members[i].pod_name);
    free(tree->members);
    free(tree->ranks);
    free(tree->source.pod_name);
    free(tree->source_path);
    free(tree->group);
    free(tree->key);
    free(tree);
}

struct pst_trees *pst_trees_close(struct pst_trees *trees)
{
    if (!trees)
        return NULL;
    pst_list_each_safe (it, &trees->all)
        tree_free(trees, pst_list_entry(it, struct tree, link));
    pst_assert(trees->count == 0);
    free(trees);
    return NULL;
}

/* ---- members ---- */

static struct member *member_at(struct tree *tree, uint32_t rank)
{
    pst_assert(rank <= tree->count);
    return rank ? &tree->members[rank - 1] : &tree->source;
}

/* Where @ip's rank is in the table, or would be. */
static uint32_t *slot_of(const struct pst_trees *trees, struct tree *tree, const char *ip)
{
    uint32_t slots = 2 * tree->room;
    uint32_t at = (uint32_t)(pst_hash64(ip, strlen(ip), trees->seed) % slots);

    pst_assert(tree->count <= tree->room); /* half of the places are free */
    while (tree->ranks[at] && strcmp(member_at(tree, tree->ranks[at])->ip, ip) != 0)
        at = (at + 1) % slots;
    return &tree->ranks[at];
}

static uint32_t rank_of(const struct pst_trees *trees, struct tree *tree, const char *ip)
{
    return tree->room ? *slot_of(trees, tree, ip) : 0;
}

static int grow(const struct pst_trees *trees, struct tree *tree)
{
    uint32_t room = tree->room ? 2 * tree->room : ROOM_MIN;
    struct member *members;
    uint32_t *ranks;

    if (tree->count < tree->room)
        return 0;
    members = realloc(tree->members, room * sizeof(*members));
    if (!members)
        return -ENOMEM;
    tree->members = members;
    ranks = calloc(2 * room, sizeof(*ranks));
    if (!ranks)
        return -ENOMEM;
    free(tree->ranks);
    tree->ranks = ranks;
    tree->room = room;
    for (uint32_t rank = 1; rank <= tree->count; rank++)
        *slot_of(trees, tree, member_at(tree, rank)->ip) = rank;
    return 0;
}

/* The first on the way from @rank to the source that is not lost. */
static uint32_t living(struct tree *tree, uint32_t rank)
{
    pst_assert(tree->fanout > 0);
    pst_assert(rank <= tree->count);
    while (rank && member_at(tree, rank)->lost)
        rank = (rank - 1) / tree->fanout;
    return rank;
}

static void member_set(struct member *member, const struct pst_tree_pod *pod, char *pod_name)
{
    pst_assert(strlen(pod->ip) < sizeof(member->ip));
    memcpy(member->ip, pod->ip, strlen(pod->ip) + 1);
    free(member->pod_name);
    member->pod_name = pod_name;
}

/* Return: the rank of a new member, or -errno. */
static int add(const struct pst_trees *trees, struct tree *tree, const struct pst_tree_pod *pod)
{
    char *pod_name;
    int r;

    if (tree->count == PST_TREE_MEMBERS_MAX)
        return -ENOSPC;
    r = grow(trees, tree);
    pod_name = r == 0 ? strdup(pod->pod_name ? pod->pod_name : "") : NULL;
    if (!pod_name)
        return -ENOMEM;
    pst_assert(tree->count < tree->room);
    pst_assert(tree->count < PST_TREE_MEMBERS_MAX);
    pst_assert(!rank_of(trees, tree, pod->ip));
    *slot_of(trees, tree, pod->ip) = tree->count + 1;
    tree->members[tree->count] = (struct member){.parent = living(tree, tree->count / tree->fanout)};
    pst_assert(tree->members[tree->count].parent <= tree->count);
    member_set(&tree->members[tree->count], pod, pod_name);
    return (int)++tree->count;
}

/* ---- trees ---- */

static bool pod_fits(const struct pst_tree_pod *pod)
{
    return pod_ip_fits(pod->ip) && pod_name_fits(pod->pod_name);
}

static struct tree *find(struct pst_trees *trees, const char *group, struct pst_bytes key)
{
    pst_list_each (it, &trees->all) {
        struct tree *tree = pst_list_entry(it, struct tree, link);

        if (strcmp(tree->group, group) == 0 &&
            pst_bytes_equal((struct pst_bytes){tree->key, tree->key_bytes}, key))
            return tree;
    }
    return NULL;
}

static int set_source(struct tree *tree, const struct pst_tree_pod *source, const char *path)
{
    char *pod_name = strdup(source->pod_name ? source->pod_name : ""), *copy = strdup(path ? path : "");

    if (!pod_name || !copy) {
        free(pod_name);
        free(copy);
        return -ENOMEM;
    }
    member_set(&tree->source, source, pod_name);
    free(tree->source_path);
    tree->source_path = copy;
    return 0;
}

static int tree_new(struct pst_trees *trees, const char *group, struct pst_bytes key, uint32_t fanout,
                    const struct pst_tree_pod *source, const char *path, struct tree **out)
{
    struct tree *tree;

    if (!source)
        return -ENOENT;
    if (trees->count == PST_TREES_MAX)
        return -ENOSPC;
    pst_assert(trees->count < PST_TREES_MAX);
    pst_assert(key.len > 0);
    pst_assert(fanout <= PST_TREE_FANOUT_MAX);
    tree = calloc(1, sizeof(*tree));
    if (!tree)
        return -ENOMEM;
    pst_list_push_back(&trees->all, &tree->link);
    trees->count++;
    tree->fanout = fanout ? fanout : PST_TREE_FANOUT;
    tree->key_bytes = key.len;
    tree->group = strdup(group);
    tree->key = malloc(key.len);
    if (!tree->group || !tree->key || set_source(tree, source, path) < 0) {
        tree_free(trees, tree);
        return -ENOMEM;
    }
    memcpy(tree->key, key.data, key.len);
    *out = tree;
    return 0;
}

static void tell(struct tree *tree, uint32_t rank, struct pst_tree_place *out)
{
    uint32_t parent = member_at(tree, rank)->parent;

    pst_assert(parent < rank); /* every way ends at the source */
    *out = (struct pst_tree_place){
        .rank = rank,
        .members = tree->count,
        .parent_rank = parent,
        .parent = {member_at(tree, parent)->ip, member_at(tree, parent)->pod_name},
        .source = {tree->source.ip, tree->source.pod_name},
        .source_path = tree->source_path,
    };
}

int pst_tree_join(struct pst_trees *trees, const char *group, struct pst_bytes key,
                  const struct pst_tree_pod *member, uint32_t fanout, const struct pst_tree_pod *source,
                  const char *source_path, uint64_t now_ms, struct pst_tree_place *out)
{
    struct tree *tree;
    int r = 0;

    if (!*group || strnlen(group, PST_TREE_GROUP_BYTES_MAX + 1) > PST_TREE_GROUP_BYTES_MAX || key.len == 0 ||
        key.len > PST_KEY_BYTES_MAX || !pod_fits(member) || (source && !pod_fits(source)) ||
        fanout > PST_TREE_FANOUT_MAX)
        return -EINVAL;
    tree = find(trees, group, key);
    if (!tree)
        r = tree_new(trees, group, key, fanout, source, source_path, &tree);
    else if (source)
        r = set_source(tree, source, source_path);
    if (r < 0)
        return r;
    tree->used_ms = now_ms;
    r = (int)rank_of(trees, tree, member->ip);
    if (r == 0)
        r = add(trees, tree, member);
    if (r < 0)
        return r;
    tell(tree, (uint32_t)r, out);
    return 0;
}

/* Whether @ip stands on the way from @rank to the source, where a reporter's parents were. */
static bool was_parent(struct tree *tree, uint32_t rank, const char *ip)
{
    pst_assert(rank <= tree->count);
    pst_assert(tree->fanout > 0);
    while (rank) {
        rank = (rank - 1) / tree->fanout;
        if (strcmp(member_at(tree, rank)->ip, ip) == 0)
            return true;
    }
    return false;
}

int pst_tree_unreachable(struct pst_trees *trees, const char *group, struct pst_bytes key,
                         const char *reporter, const char *ip, uint64_t now_ms, struct pst_tree_place *out)
{
    struct tree *tree = find(trees, group, key);
    uint32_t rank = tree ? rank_of(trees, tree, reporter) : 0;
    struct member *member, *parent;

    if (rank == 0)
        return -ENOENT;
    tree->used_ms = now_ms;
    member = member_at(tree, rank);
    parent = member_at(tree, member->parent);
    if (strcmp(parent->ip, ip) != 0) {
        if (!was_parent(tree, rank, ip))
            return -EINVAL;
        tell(tree, rank, out);
        return 0;
    }
    if (member->parent == 0)
        return -EHOSTUNREACH;
    if (parent->reporter && parent->reporter != rank && !parent->lost) {
        parent->lost = true;
        tree->lost++;
        pst_assert(tree->lost <= tree->count);
    }
    if (!parent->reporter)
        parent->reporter = rank;
    member->parent = living(tree, (member->parent - 1) / tree->fanout);
    pst_assert(member->parent < rank);
    tell(tree, rank, out);
    return 0;
}

void pst_trees_list(const struct pst_trees *trees, pst_tree_each *each, void *arg)
{
    pst_list_each (it, (struct pst_list *)&trees->all) {
        const struct tree *tree = pst_list_entry(it, struct tree, link);
        pst_assert(tree->lost <= tree->count && tree->count <= PST_TREE_MEMBERS_MAX);
        const struct pst_tree_info info = {.group = tree->group,
                                           .key = {tree->key, tree->key_bytes},
                                           .fanout = tree->fanout,
                                           .members = tree->count,
                                           .lost = tree->lost,
                                           .source = {tree->source.ip, tree->source.pod_name}};

        each(arg, &info);
    }
}

void pst_trees_forget(struct pst_trees *trees, uint64_t now_ms)
{
    pst_list_each_safe (it, &trees->all) {
        struct tree *tree = pst_list_entry(it, struct tree, link);

        if (now_ms - tree->used_ms > PST_TREE_LIFE_MS && now_ms > tree->used_ms)
            tree_free(trees, tree);
    }
}
