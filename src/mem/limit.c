/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c: how much memory this process can still get: the cgroup it is in and every one above, in either
 * version, and what the machine has left. Page cache counts as left, since the kernel drops it before it
 * refuses memory.
 */
#include "mem/limit.h"

#include <fcntl.h>
#include <stdio.h>

struct cgroup_files {
    const char *mount;
    const char *limit, *used;
    const char *cache_names[2]; /* in memory.stat */
};

static const struct cgroup_files cgroup_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .used = "memory.usage_in_bytes",
    .cache_names = {"total_inactive_file", "total_active_file"},
};
static const struct cgroup_files cgroup_v2 = {
    .mount = "/sys/fs/cgroup",
    .limit = "memory.max",
    .used = "memory.current",
    .cache_names = {"inactive_file", "active_file"},
};

struct text {
    char data[16 << 10];
};

static bool read_text(const char *path, struct text *out)
{
    pst_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = 1;

    if (fd < 0)
        return false;
    while (n > 0 && len < sizeof(out->data) - 1) {
        n = read(fd, out->data + len, sizeof(out->data) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    pst_assert(len < sizeof(out->data));
    out->data[len] = 0;
    return n >= 0;
}

/* The number after @name at the start of a line; 0 when there is none. */
static uint64_t number_after(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && strchr(" :\t", line[len]))
            return strtoull(line + len + 1, NULL, 10);
    }
    return 0;
}

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    struct text text;
    char path[1024], *end;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) || !read_text(path, &text))
        return false;
    *out = strtoull(text.data, &end, 10);
    return end != text.data; /* "max" is no number: no limit */
}

static void note_cgroup(const char *folder, const struct cgroup_files *files, struct pst_limit *out)
{
    uint64_t limit, used, cache = 0, left;
    struct text text;
    char path[1024];

    if (!read_number(folder, files->limit, &limit) || !read_number(folder, files->used, &used))
        return;
    if (snprintf(path, sizeof(path), "%s/memory.stat", folder) < (int)sizeof(path) && read_text(path, &text))
        cache =
            number_after(text.data, files->cache_names[0]) + number_after(text.data, files->cache_names[1]);
    used -= pst_min(used, cache);
    left = limit - pst_min(limit, used);
    pst_assert(left <= limit);
    if (left >= out->left_bytes)
        return;
    out->left_bytes = left;
    snprintf(out->text, sizeof(out->text), "cgroup %.100s: limit %llu MiB, in use %llu MiB", folder,
             (unsigned long long)(limit >> 20), (unsigned long long)(used >> 20));
}

/* From the process's own group up: any of them may be the tightest. In a container the upper names may not
 * exist. */
static void note_cgroups(const char *root, const char *group, const struct cgroup_files *files,
                         struct pst_limit *out)
{
    char path[768];
    size_t mount_len = (size_t)snprintf(path, sizeof(path), "%s%s", root, files->mount);

    pst_assert(mount_len < sizeof(path));
    /* A name that leads out of the visible tree says nothing about this one. */
    if (strstr(group, "..") || strlen(group) >= sizeof(path) - mount_len)
        group = "";
    memcpy(path + mount_len, group, strlen(group) + 1);
    while (strlen(path) > mount_len) {
        note_cgroup(path, files, out);
        *strrchr(path, '/') = 0;
    }
    note_cgroup(path, files, out);
}

/* A line of /proc/self/cgroup is "<number>:<controllers>:<group>"; version 2 has no controllers in it. */
static void note_cgroup_line(const char *root, char *line, struct pst_limit *out)
{
    char *controllers = strchr(line, ':'), *group;

    if (!controllers)
        return;
    controllers++;
    group = strchr(controllers, ':');
    if (!group)
        return;
    *group++ = 0;
    if (!*controllers)
        note_cgroups(root, group, &cgroup_v2, out);
    else if (strstr(controllers, "memory"))
        note_cgroups(root, group, &cgroup_v1, out);
}

static void note_machine(const char *root, struct pst_limit *out)
{
    struct text text;
    char path[1024];
    uint64_t left;

    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!read_text(path, &text))
        return;
    left = number_after(text.data, "MemAvailable") << 10;
    if (left == 0 || left >= out->left_bytes)
        return;
    pst_assert(left > 0);
    out->left_bytes = left;
    snprintf(out->text, sizeof(out->text), "MemAvailable in /proc/meminfo: %llu MiB of %llu MiB",
             (unsigned long long)(left >> 20),
             (unsigned long long)(number_after(text.data, "MemTotal") >> 10));
}

void pst_limit_read(const char *root, struct pst_limit *out)
{
    struct text text;
    char path[1024], *save = NULL;

    pst_assert(strlen(root) < 512);
    *out = (struct pst_limit){.left_bytes = UINT64_MAX};
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (read_text(path, &text)) {
        for (char *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            note_cgroup_line(root, line, out);
    }
    pst_assert(out->left_bytes == UINT64_MAX || out->text[0]);
    note_machine(root, out);
}
