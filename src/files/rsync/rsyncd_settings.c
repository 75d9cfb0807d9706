/* SPDX-License-Identifier: Apache-2.0 */
/* rsyncd_settings.c: modules, as rsync reads them: anew for each connection, from a file that is always
 * whole. */
#include "files/key.h"
#include "files/rsync/rsyncd_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

/* Of the names of what lies beside the settings. */
enum { LINK_BYTES = PST_RSYNCD_NAME_BYTES_MAX + 8 };

static const char settings_name[] = "rsyncd.conf", secrets_name[] = "secrets";

/* ---- one module ---- */

static bool name_fits(const char *name)
{
    size_t bytes = strlen(name);

    /* "global" is a section of the file's own */
    return bytes > 0 && bytes <= PST_RSYNCD_NAME_BYTES_MAX && strcasecmp(name, "global") != 0 &&
           name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == bytes;
}

/* What lies beside the settings for a module: "to-NAME" is a link to its folder, since versions of rsync read
 * '%' in a path differently; "lock-NAME" counts connections; "rules-NAME" says which file is offered. */
static void beside_name(char name[LINK_BYTES], const char *what, const char *module)
{
    int bytes = snprintf(name, LINK_BYTES, "%s-%s", what, module);

    pst_assert(bytes > 0 && bytes < LINK_BYTES);
}

/*
 * A module with rules is the folder around what is offered, and rsync checks names by its rules, not where
 * links lead: "NAME/link/file" could be a file beside NAME. So such a module is fetched by its own name or by
 * NAME, never by a path below. A shell looks before the transfer begins: nothing but options may stand before
 * ".", as a folder there would be the one that the paths behind it begin in.
 */
static const char whole_alone[] =
    "pre-xfer exec = i=1; m=$RSYNC_MODULE_NAME; n() { echo 'this module is fetched whole'; exit 1; }; "
    "while eval 'a=$RSYNC_ARG'$i; do case \"$a\" in .) break;; -*) i=$((i+1));; *) n;; esac; done; "
    "case \"$RSYNC_REQUEST\" in \"$m\"/*/?*) n;; \"$m\"|\"$m\"/*) ;; *) n;; esac\n"
    "refuse options = copy-links copy-dirlinks copy-unsafe-links files-from\n";

/*
 * A writable module's first folders are namespaces, and a key's ".." ends at its own: rsync's would lead out.
 * Clients of ours resolve it. What is left is of others, and refused.
 */
static const char without_dots[] =
    "pre-xfer exec = case \"/$RSYNC_REQUEST/\" in */../*|*\"/.. $RSYNC_MODULE_NAME/\"*) "
    "echo 'a path with \"..\" may leave its namespace'; exit 1;; esac\n";

static void write_module(FILE *out, const struct pst_rsyncd *d, const struct rsyncd_module *module)
{
    char name[LINK_BYTES];

    beside_name(name, "to", module->name);
    fprintf(out, "\n[%s]\npath = %s/%s\nread only = %s\n", module->name, d->folder, name,
            module->writable ? "no" : "yes");
    if (module->has_rules)
        fprintf(out, "exclude from = %s/rules-%s\n%s", d->folder, module->name, whole_alone);
    else if (module->writable)
        fprintf(out, "exclude = " PST_KEY_RESERVED "*.tree/***\n%s", without_dots);
    else
        fputs("refuse options = copy-links copy-dirlinks copy-unsafe-links\n", out);
    if (d->connections_max)
        fprintf(out, "max connections = %u\nlock file = %s/lock-%s\n", d->connections_max, d->folder,
                module->name);
}

/* ---- the files ---- */

/* Return: an open file of mode 0600 with the name "NAME.new", or NULL with errno. */
static FILE *begin_file(const struct pst_rsyncd *d, const char *name)
{
    char fresh[LINK_BYTES + 8];
    FILE *out;
    int fd;

    pst_assert(d->folder_fd >= 0);
    snprintf(fresh, sizeof(fresh), "%s.new", name);
    unlinkat(d->folder_fd, fresh, 0);
    fd = openat(d->folder_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !out)
        close(fd);
    return out;
}

static int end_file(const struct pst_rsyncd *d, const char *name, FILE *out)
{
    char fresh[LINK_BYTES + 8];
    bool whole = !ferror(out);

    snprintf(fresh, sizeof(fresh), "%s.new", name);
    int r = fclose(out) != 0 || !whole ? -EIO : 0;

    if (r == 0 && renameat(d->folder_fd, fresh, d->folder_fd, name) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(d->folder_fd, fresh, 0);
    return r;
}

static int write_secrets(const struct pst_rsyncd *d)
{
    FILE *out = begin_file(d, secrets_name);

    if (!out)
        return -errno;
    fprintf(out, "%s:%s\n", PST_RSYNCD_USER, d->token);
    return end_file(d, secrets_name, out);
}

bool pst_rsyncd_munges(void)
{
    return geteuid() != 0;
}

/*
 * Root's daemon locks a connection up in its module's folder, so no link leads out; another user's may not,
 * and rsync takes the folder for its root by itself.
 */
static void write_globals(FILE *out, const struct pst_rsyncd *d)
{
    bool munges = pst_rsyncd_munges();

    fprintf(out, "use chroot = %s\nmunge symlinks = %s\nnumeric ids = yes\nreverse lookup = no\n",
            munges ? "no" : "yes", munges ? "yes" : "no");
    fputs("list = no\ntimeout = 600\nlog file = /dev/stderr\ntransfer logging = no\n", out);
    /* A thousand pods may come at once; and none of them makes a program run as another user. */
    fputs("listen backlog = 4096\nincoming chmod = ug-s,o-t\n", out);
    if (!munges)
        fputs("uid = root\ngid = root\n", out);
    if (d->token[0])
        fprintf(out, "auth users = %s\nsecrets file = %s/%s\nstrict modes = yes\n", PST_RSYNCD_USER,
                d->folder, secrets_name);
}

int rsyncd_write_settings(struct pst_rsyncd *d)
{
    FILE *out;
    int r;

    pst_assert(d->folder_fd >= 0);
    d->written = true;
    r = d->token[0] ? write_secrets(d) : 0;
    if (r < 0)
        return r;
    out = begin_file(d, settings_name);
    if (!out)
        return -errno;
    pst_assert(d->module_count <= d->module_room);
    write_globals(out, d);
    for (uint32_t i = 0; i < d->module_count; i++)
        write_module(out, d, &d->modules[i]);
    return end_file(d, settings_name, out);
}

/* First what the module leads to: without it nothing is served. Return: 0, or -errno and it is. */
static int forget(const struct pst_rsyncd *d, const char *module)
{
    static const char *const beside[] = {"to", "lock", "rules"};
    char name[LINK_BYTES];

    pst_assert(d->folder_fd >= 0);
    pst_assert(*module);
    for (size_t i = 0; i < pst_count_of(beside); i++) {
        beside_name(name, beside[i], module);
        if (unlinkat(d->folder_fd, name, 0) < 0 && errno != ENOENT && i == 0)
            return -errno;
    }
    return 0;
}

/* Rules that let through @leaf with what is beneath it, and nothing else. In a rule with a wildcard rsync
 * takes '\\' for an escape, in others for itself. */
static int write_rules(const struct pst_rsyncd *d, const char *module, const char *leaf, bool is_folder)
{
    bool wild = is_folder || strpbrk(leaf, "*?[");
    char name[LINK_BYTES];
    FILE *out;

    beside_name(name, "rules", module);
    out = begin_file(d, name);
    if (!out)
        return -errno;
    fputs("+ /", out);
    for (; *leaf; leaf++) {
        if (wild && strchr("*?[\\", *leaf))
            fputc('\\', out);
        fputc(*leaf, out);
    }
    fprintf(out, "%s\n- *\n", is_folder ? "/***" : "");
    return end_file(d, name, out);
}

void rsyncd_remove_settings(struct pst_rsyncd *d)
{
    if (!d->written)
        return;
    for (uint32_t i = 0; i < d->module_count; i++)
        forget(d, d->modules[i].name);
    unlinkat(d->folder_fd, settings_name, 0);
    unlinkat(d->folder_fd, secrets_name, 0);
    unlinkat(d->folder_fd, "output", 0);
}

/* ---- modules come and go ---- */

/* rsync takes names that differ in case for one. Return: where @name is, or the number of modules. */
static uint32_t find(const struct pst_rsyncd *d, const char *name)
{
    uint32_t i = 0;

    pst_assert(d->module_count <= d->module_room && d->module_room <= 2 * PST_RSYNCD_MODULES_MAX);
    while (i < d->module_count && strcasecmp(d->modules[i].name, name) != 0)
        i++;
    return i;
}

static int grow(struct pst_rsyncd *d)
{
    uint32_t room = d->module_room ? 2 * d->module_room : 8;
    struct rsyncd_module *modules;

    pst_assert(d->module_count <= d->module_room);
    if (d->module_count < d->module_room)
        return 0;
    if (d->module_count == PST_RSYNCD_MODULES_MAX)
        return -ENOSPC;
    modules = realloc(d->modules, room * sizeof(*modules));
    if (!modules)
        return -ENOMEM;
    d->modules = modules;
    d->module_room = room;
    return 0;
}

/* What a module offers. */
struct offer {
    const char *folder;
    const char *leaf; /* of what it has alone; NULL: all */
    bool leaf_is_folder, writable;
};

/* Makes what lies beside the settings for a module. */
static int lay_beside(const struct pst_rsyncd *d, const char *name, const struct offer *offer)
{
    char link[LINK_BYTES];

    beside_name(link, "to", name);
    unlinkat(d->folder_fd, link, 0);
    if (symlinkat(offer->folder, d->folder_fd, link) < 0)
        return -errno;
    return offer->leaf ? write_rules(d, name, offer->leaf, offer->leaf_is_folder) : 0;
}

static int add(struct pst_rsyncd *d, const char *name, const struct offer *offer)
{
    int r = find(d, name) < d->module_count ? -EEXIST : grow(d);
    struct rsyncd_module *module;

    if (r < 0)
        return r;
    pst_assert(d->module_count < d->module_room);
    module = &d->modules[d->module_count++];
    *module = (struct rsyncd_module){.writable = offer->writable, .has_rules = offer->leaf != NULL};
    pst_assert(strlen(name) <= PST_RSYNCD_NAME_BYTES_MAX);
    memcpy(module->name, name, strlen(name) + 1);
    r = lay_beside(d, name, offer);
    if (r == 0)
        r = rsyncd_write_settings(d);
    if (r < 0) {
        forget(d, name);
        d->module_count--;
    }
    return r;
}

int pst_rsyncd_add(struct pst_rsyncd *d, const char *name, const char *path, int flags)
{
    char folder[PATH_MAX];
    struct offer offer = {.folder = folder, .writable = flags & PST_RSYNCD_WRITABLE};
    struct stat st;
    int r;

    if (!name_fits(name) || path[0] != '/' || strlen(path) >= sizeof(folder))
        return -EINVAL;
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return -ENOTDIR;
    offer.leaf_is_folder = S_ISDIR(st.st_mode);
    if (!offer.leaf_is_folder || flags & PST_RSYNCD_NAMED)
        offer.leaf = strrchr(path, '/') + 1;
    if (offer.leaf && (!*offer.leaf || strpbrk(offer.leaf, "\r\n"))) /* a rule is a line */
        return -EINVAL;
    snprintf(folder, sizeof(folder), "%.*s", offer.leaf ? (int)pst_max(offer.leaf - path - 1, 1) : PATH_MAX,
             path);
    pthread_mutex_lock(&d->lock);
    r = add(d, name, &offer);
    pthread_mutex_unlock(&d->lock);
    return r;
}

int pst_rsyncd_remove(struct pst_rsyncd *d, const char *name)
{
    uint32_t i;
    int r = -ENOENT;

    pthread_mutex_lock(&d->lock);
    i = find(d, name);
    if (i < d->module_count)
        r = forget(d, d->modules[i].name);
    if (r == 0) {
        d->modules[i] = d->modules[--d->module_count];
        pst_assert(d->module_count < d->module_room);
        rsyncd_write_settings(d); /* or the next time: a module that leads nowhere serves nothing */
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}
