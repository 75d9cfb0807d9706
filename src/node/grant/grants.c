/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grants.c: grants in force. A file that was read waits until the control thread puts it into force, in two
 * steps: first all that can fail, then the change, which cannot.
 */
#include "node/grants.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdio.h>

#define GRANT_MAGIC  0x6772616eu
#define GRANTS_MAGIC 0x67726e74u

enum {
    OWN_BYTES = 32,
    TOLD_NS = 1000000000,
    TOLD_MAX = 10,
    PROOFS_MAX = PST_GRANTS_MAX * (PST_GRANT_SECRETS_MAX + 1) + 2,
};

_Static_assert((int)PROOFS_MAX <= (int)PST_BOOT_SECRETS_MAX, "the server takes every secret");

/* Whose a secret is; the server's owner of it. */
struct proof {
    struct pst_grant *grant; /* NULL: anything */
    bool within;
};

struct pst_grants {
    uint32_t magic;
    char *path;
    uint32_t file; /* counts those that came into force; control thread's */
    uint8_t own[OWN_BYTES];
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    size_t secret_bytes;
    pthread_mutex_t lock; /* of all below; what the control thread alone changes, it reads without */
    struct pst_list all;  /* grants */
    struct pst_grant_file *next;
    uint64_t told_since_ns;
    uint32_t told, untold;
    struct proof proofs[PROOFS_MAX]; /* that the server has now; control thread's */
};

/* ---- terms ---- */

struct pst_terms *pst_terms_unref(struct pst_terms *terms)
{
    if (!terms)
        return NULL;
    pst_assert(terms->refs > 0);
    if (atomic_fetch_sub(&terms->refs, 1) == 1) {
        pst_grant_terms_fini(&terms->are);
        free(terms);
    }
    return NULL;
}

struct pst_terms *pst_grant_terms_ref(struct pst_grant *grant, uint64_t *version)
{
    struct pst_terms *terms;

    pst_assert(grant->magic == GRANT_MAGIC);
    pthread_mutex_lock(&grant->lock);
    terms = grant->terms;
    atomic_fetch_add(&terms->refs, 1);
    *version = grant->version;
    pthread_mutex_unlock(&grant->lock);
    return terms;
}

/* @terms: takes the reference. */
static void grant_set_terms(struct pst_grant *grant, struct pst_terms *terms)
{
    struct pst_terms *before;

    pst_assert(terms->refs > 0);
    pst_assert(grant->magic == GRANT_MAGIC);
    pthread_mutex_lock(&grant->lock);
    before = grant->terms;
    grant->terms = terms;
    atomic_fetch_add(&grant->version, 1);
    pthread_mutex_unlock(&grant->lock);
    grant->quota.reservations_max = terms->are.reservations_max;
    grant->quota.pins_max = terms->are.pins_max;
    grant->quota.bytes_max = terms->are.pinned_bytes_max;
    pst_terms_unref(before);
}

static struct pst_terms *terms_new(const struct pst_grant_terms *are)
{
    struct pst_terms *terms = calloc(1, sizeof(*terms));

    if (terms && pst_grant_terms_copy(are, &terms->are) < 0) {
        free(terms);
        return NULL;
    }
    if (terms)
        terms->refs = 1;
    return terms;
}

/* ---- a grant ---- */

static struct pst_grant *grant_free(struct pst_grant *grant)
{
    if (!grant)
        return NULL;
    pst_assert(grant->magic == GRANT_MAGIC);
    pst_assert(grant->sessions == 0);
    pst_assert(pst_list_empty(&grant->link));
    pst_terms_unref(grant->terms);
    pthread_mutex_destroy(&grant->lock);
    grant->magic = 0;
    free(grant->shards);
    free(grant);
    return NULL;
}

static struct pst_grant *grant_new(const char *name, uint32_t shard_count)
{
    struct pst_grant *grant = calloc(1, sizeof(*grant));

    pst_assert(shard_count > 0);
    pst_assert(strlen(name) <= PST_GRANT_NAME_BYTES_MAX);
    if (!grant)
        return NULL;
    grant->magic = GRANT_MAGIC;
    snprintf(grant->name, sizeof(grant->name), "%s", name);
    pst_list_init(&grant->link);
    pthread_mutex_init(&grant->lock, NULL);
    grant->shards = aligned_alloc(_Alignof(struct pst_grant_shard), shard_count * sizeof(*grant->shards));
    if (!grant->shards)
        return grant_free(grant);
    memset(grant->shards, 0, shard_count * sizeof(*grant->shards));
    return grant;
}

/* One that is in force; NULL: none. */
static struct pst_grant *grant_find(const struct pst_grants *grants, const char *name)
{
    pst_list_each (it, &grants->all) {
        struct pst_grant *grant = pst_list_entry(it, struct pst_grant, link);

        if (grant->given && strcmp(grant->name, name) == 0)
            return grant;
    }
    return NULL;
}

/* ---- a new file ---- */

/* What one grant of a file becomes. */
struct change {
    struct pst_grant *grant; /* there already, or made for it */
    bool made;
    struct pst_terms *terms;
};

static void changes_free(struct change *changes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pst_terms_unref(changes[i].terms);
        if (changes[i].made)
            grant_free(changes[i].grant);
    }
}

/* Return: 0, -ENOMEM; changes_free() in any case but the first. */
static int changes_make(const struct pst_grants *grants, const struct pst_grant_file *file,
                        uint32_t shard_count, struct change changes[PST_GRANTS_MAX])
{
    pst_assert(file->count <= PST_GRANTS_MAX);
    for (uint32_t i = 0; i < file->count; i++) {
        struct change *change = &changes[i];

        change->grant = grant_find(grants, file->grants[i].name);
        change->made = !change->grant;
        if (change->made)
            change->grant = grant_new(file->grants[i].name, shard_count);
        change->terms = terms_new(&file->grants[i].terms);
        if (!change->grant || !change->terms) {
            change->made &= change->grant != NULL;
            return -ENOMEM;
        }
    }
    return 0;
}

static size_t own_secret(const struct pst_grants *grants, const char *name,
                         uint8_t to[PST_GRANTS_OWN_SECRET_BYTES_MAX])
{
    size_t bytes = strlen(name);

    pst_assert(bytes <= PST_GRANT_NAME_BYTES_MAX);
    memcpy(to, grants->own, OWN_BYTES);
    memcpy(to + OWN_BYTES, name, bytes);
    return OWN_BYTES + bytes;
}

/* What the server is to take, and whose it is. */
struct taking {
    uint32_t count;
    struct pst_boot_secret secrets[PROOFS_MAX];
    struct proof proofs[PROOFS_MAX];
    struct proof *owners; /* where they will lie */
    uint8_t own[PST_GRANTS_MAX + 1][PST_GRANTS_OWN_SECRET_BYTES_MAX];
};

static void taking_add(struct taking *t, struct pst_bytes secret, struct proof proof, bool confined)
{
    pst_assert(t->count < PROOFS_MAX);
    pst_assert(secret.len > 0);
    t->secrets[t->count] = (struct pst_boot_secret){secret, &t->owners[t->count], confined};
    t->proofs[t->count++] = proof;
}

static void taking_add_all(struct taking *t, const struct pst_grants *grants,
                           const struct pst_grant_file *file, const struct change *changes)
{
    for (uint32_t i = 0; i < file->count; i++) {
        const struct pst_granted *granted = &file->grants[i];
        struct proof proof = {.grant = changes[i].grant};
        size_t bytes = own_secret(grants, granted->name, t->own[i]);

        for (uint32_t j = 0; j < granted->secret_count; j++)
            taking_add(t, granted->secrets[j].secret, proof, pst_grant_is_confined(&granted->terms));
        proof.within = true; /* what it shares, it had already */
        taking_add(t, (struct pst_bytes){t->own[i], bytes}, proof, false);
    }
    if (grants->secret_bytes)
        taking_add(t, (struct pst_bytes){grants->secret, grants->secret_bytes}, (struct proof){0}, false);
    taking_add(t, (struct pst_bytes){t->own[file->count], own_secret(grants, "", t->own[file->count])},
               (struct proof){.within = true}, false);
}

static int tell_server(struct pst_grants *grants, const struct pst_grant_file *file,
                       const struct change *changes, struct pst_boot_server *server)
{
    struct taking *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return -ENOMEM;
    t->owners = grants->proofs;
    taking_add_all(t, grants, file, changes);
    r = pst_boot_server_secrets(server, t->secrets, t->count);
    if (r == 0)
        memcpy(grants->proofs, t->proofs, sizeof(grants->proofs));
    explicit_bzero(t, sizeof(*t));
    free(t);
    return r;
}

/* Those that are in the file no more; what they allowed, they do not from now on. */
static uint32_t drop_others(struct pst_grants *grants, struct pst_terms *nothing)
{
    uint32_t dropped = 0;

    pst_list_each_safe (it, &grants->all) {
        struct pst_grant *grant = pst_list_entry(it, struct pst_grant, link);

        if (!grant->given || grant->kept == grants->file)
            continue;
        dropped++;
        grant->given = false;
        atomic_fetch_add(&nothing->refs, 1);
        grant_set_terms(grant, nothing);
        if (grant->sessions == 0) {
            pst_list_remove(&grant->link);
            grant_free(grant);
        }
    }
    return dropped;
}

static uint32_t put_into_force(struct pst_grants *grants, const struct pst_grant_file *file,
                               struct change *changes, struct pst_terms *nothing)
{
    uint32_t dropped;

    pthread_mutex_lock(&grants->lock);
    grants->file++;
    for (uint32_t i = 0; i < file->count; i++) {
        struct pst_grant *grant = changes[i].grant;

        pst_assert(grant->magic == GRANT_MAGIC);
        pst_assert(changes[i].terms);
        grant->given = true;
        grant->kept = grants->file;
        grant_set_terms(grant, changes[i].terms);
        changes[i].terms = NULL;
        if (changes[i].made)
            pst_list_push_back(&grants->all, &grant->link);
        changes[i].made = false;
    }
    dropped = drop_others(grants, nothing);
    pthread_mutex_unlock(&grants->lock);
    return dropped;
}

static struct pst_grant_file *take_next(struct pst_grants *grants, struct pst_grant_file *next)
{
    struct pst_grant_file *before;

    pthread_mutex_lock(&grants->lock);
    before = grants->next;
    grants->next = next;
    pthread_mutex_unlock(&grants->lock);
    return before;
}

int pst_grants_renew(struct pst_grants *grants, struct pst_boot_server *server, uint32_t shard_count,
                     char line[PST_FAULT_BYTES])
{
    struct pst_grant_file *file = take_next(grants, NULL);
    struct change changes[PST_GRANTS_MAX] = {{0}};
    struct pst_grant_terms none = {0};
    struct pst_terms *nothing;
    uint32_t secrets = 0, dropped = 0;
    int r;

    pst_assert(grants->magic == GRANTS_MAGIC);
    pst_assert(shard_count > 0);
    if (!file)
        return 0;
    nothing = terms_new(&none);
    r = nothing ? changes_make(grants, file, shard_count, changes) : -ENOMEM;
    if (r == 0)
        r = tell_server(grants, file, changes, server);
    if (r == 0)
        dropped = put_into_force(grants, file, changes, nothing);
    for (uint32_t i = 0; i < file->count; i++)
        secrets += file->grants[i].secret_count;
    if (r == 0)
        snprintf(line, PST_FAULT_BYTES, "grants: %u grants with %u secrets are in force, %u are gone",
                 file->count, secrets, dropped);
    else
        snprintf(line, PST_FAULT_BYTES, "grants: out of memory; those of before stay in force");
    changes_free(changes, file->count);
    pst_terms_unref(nothing);
    pst_grant_file_free(file);
    return r < 0 ? r : 1;
}

int pst_grants_reload(struct pst_grants *grants, char fault[PST_FAULT_BYTES])
{
    struct pst_grant_file *file = NULL;
    int r = pst_grant_file_read(grants->path, &file, fault);

    pst_assert(grants->magic == GRANTS_MAGIC);
    if (r == 0)
        pst_grant_file_free(take_next(grants, file));
    return r;
}

int pst_grants_own_secret(struct pst_grants *grants, const char *name, uint8_t *secret, size_t *bytes)
{
    bool there;

    pthread_mutex_lock(&grants->lock);
    there = !name || grant_find(grants, name);
    pthread_mutex_unlock(&grants->lock);
    if (!there)
        return -ENOENT;
    *bytes = own_secret(grants, name ? name : "", secret);
    return 0;
}

/* ---- sessions ---- */

int pst_grant_enter(void *owner, struct pst_grant **out, bool *within)
{
    const struct proof *proof = owner;
    struct pst_grant *grant = proof ? proof->grant : NULL;

    pst_assert(!grant || (grant->magic == GRANT_MAGIC && grant->given));
    if (grant && grant->terms->are.connections_max && grant->sessions >= grant->terms->are.connections_max)
        return -EBUSY;
    if (grant)
        grant->sessions_told = ++grant->sessions;
    *out = grant;
    *within = proof && proof->within;
    return 0;
}

void pst_grant_leave(struct pst_grants *grants, struct pst_grant *grant)
{
    if (!grant)
        return;
    pst_assert(grant->magic == GRANT_MAGIC);
    pst_assert(grant->sessions > 0);
    pst_assert(!pst_list_empty(&grant->link));
    grant->sessions_told = --grant->sessions;
    if (grant->given || grant->sessions > 0)
        return;
    pthread_mutex_lock(&grants->lock);
    pst_list_remove(&grant->link);
    pthread_mutex_unlock(&grants->lock);
    grant_free(grant);
}

const char *pst_grant_ends(const struct pst_grant *grant, bool shares)
{
    pst_assert(grant->magic == GRANT_MAGIC);
    if (!grant->given)
        return "its grant is gone";
    return shares && pst_grant_is_confined(&grant->terms->are) ? "its grant no longer reads every key" : NULL;
}

/* ---- what is refused ---- */

bool pst_grant_refused(struct pst_grants *grants, struct pst_grant *grant, uint8_t right, uint32_t *untold)
{
    uint64_t now_ns = pst_now_ns();
    bool tell;

    pst_assert(right == PST_RIGHT_READ || right == PST_RIGHT_WRITE || right == PST_RIGHT_ADMIN);
    pst_assert(grant->magic == GRANT_MAGIC);
    atomic_fetch_add(&grant->refused[right >> 1], 1);
    pthread_mutex_lock(&grants->lock);
    if (now_ns - grants->told_since_ns > TOLD_NS) {
        grants->told_since_ns = now_ns;
        grants->told = 0;
    }
    tell = grants->told < TOLD_MAX;
    grants->told += tell;
    pst_assert(grants->told <= TOLD_MAX);
    *untold = grants->untold;
    grants->untold = tell ? 0 : grants->untold + 1;
    pthread_mutex_unlock(&grants->lock);
    return tell;
}

static size_t print_grant(const struct pst_grant *grant, char *to, size_t room)
{
    static const char *const names[PST_RIGHT_COUNT] = {"refused_read", "refused_write", "refused_admin"};
    size_t at = (size_t)snprintf(to, room, "grant.%s.connections %llu\n", grant->name,
                                 (unsigned long long)grant->sessions_told);

    for (int i = 0; i < PST_RIGHT_COUNT && at < room; i++)
        at += (size_t)snprintf(to + at, room - at, "grant.%s.%s %llu\n", grant->name, names[i],
                               (unsigned long long)grant->refused[i]);
    return at;
}

size_t pst_grants_print(struct pst_grants *grants, char *to, size_t room)
{
    size_t bytes = 0;

    pthread_mutex_lock(&grants->lock);
    pst_list_each (it, &grants->all) {
        const struct pst_grant *grant = pst_list_entry(it, struct pst_grant, link);
        size_t more = grant->given && bytes < room ? print_grant(grant, to + bytes, room - bytes) : 0;

        if (bytes + more >= room)
            break;
        bytes += more;
    }
    pthread_mutex_unlock(&grants->lock);
    pst_assert(bytes <= room);
    return bytes;
}

/* ---- beginning and end ---- */

int pst_grants_open(const char *path, struct pst_bytes secret, struct pst_grants **out,
                    char fault[PST_FAULT_BYTES])
{
    struct pst_grants *grants = calloc(1, sizeof(*grants));
    int r = -ENOMEM;

    pst_assert(path);
    pst_assert(secret.len <= sizeof(grants->secret));
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!grants)
        return -ENOMEM;
    grants->magic = GRANTS_MAGIC;
    pst_random(grants->own, sizeof(grants->own));
    if (secret.len)
        memcpy(grants->secret, secret.data, secret.len);
    grants->secret_bytes = secret.len;
    pthread_mutex_init(&grants->lock, NULL);
    pst_list_init(&grants->all);
    grants->path = strdup(path);
    if (grants->path)
        r = pst_grants_reload(grants, fault);
    if (r < 0)
        pst_grants_close(grants);
    else
        *out = grants;
    return r;
}

struct pst_grants *pst_grants_close(struct pst_grants *grants)
{
    if (!grants)
        return NULL;
    pst_assert(grants->magic == GRANTS_MAGIC);
    while (!pst_list_empty(&grants->all)) {
        struct pst_grant *grant = pst_list_first(&grants->all, struct pst_grant, link);

        pst_list_remove(&grant->link);
        grant_free(grant);
    }
    pst_grant_file_free(grants->next);
    pthread_mutex_destroy(&grants->lock);
    explicit_bzero(grants->own, sizeof(grants->own));
    explicit_bzero(grants->secret, sizeof(grants->secret));
    grants->magic = 0;
    free(grants->path);
    free(grants);
    return NULL;
}
