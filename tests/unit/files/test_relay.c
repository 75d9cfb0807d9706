/* SPDX-License-Identifier: Apache-2.0 */
/* test_relay.c: a member of a broadcast whose source ends and starts anew. */
#include "files/relay/relay_priv.h"

#include "files/relay/relay.h"

#include "lib/cm.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { STALL_MS = 10000 };

static char folder[] = "/tmp/penstock-relay-XXXXXX";

/* Which one of them serves. */
struct sources {
    struct pst_broadcasts *first, *second;
    _Atomic bool has_ended;
};

static int gather(void *ctx, const char *group, const char *name, struct pst_broadcast_files *out,
                  char fault[PST_FAULT_BYTES])
{
    struct pst_entry file = {.kind = PST_ENTRY_FILE, .mode = 0600, .bytes = 5, .path = "", .target = ""};
    struct stat st;

    (void)ctx, (void)group, (void)name, (void)fault;
    out->fds = malloc(sizeof(*out->fds));
    assert_non_null(out->fds);
    out->fds[0] = memfd_create("file", MFD_CLOEXEC);
    assert_int_equal(write(out->fds[0], "bytes", 5), 5);
    assert_int_equal(fstat(out->fds[0], &st), 0);
    file.modified_ns = pst_modified_ns(&st);
    assert_int_equal(pst_manifest_add(&out->m, &file), 0);
    return 0;
}

static int resolve(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES])
{
    (void)ctx, (void)name, (void)writes, (void)folder_fd, (void)leaf, (void)fault;
    return -EPERM;
}

/* The first source ends as its child comes. */
static int serve(void *ctx, struct link *link, uint32_t operation, const char *name)
{
    struct sources *sources = ctx;

    if (operation == CARRY_FOLLOW && !atomic_exchange(&sources->has_ended, true)) {
        pst_broadcasts_stop(sources->first);
        return pst_broadcasts_serve(sources->first, link, operation, name);
    }
    return pst_broadcasts_serve(sources->has_ended ? sources->second : sources->first, link, operation, name);
}

static void a_source_that_starts_anew_has_its_member_again(void **state)
{
    const struct pst_broadcasts_settings source = {.gather = gather};
    struct sources sources = {.first = pst_broadcasts_open(&source), .second = pst_broadcasts_open(&source)};
    const struct pst_carry_server_settings settings = {
        .host = "127.0.0.1", .stall_ms = STALL_MS, .resolve = resolve, .serve = serve, .ctx = &sources};
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    const struct pst_carry_place to = {.folder_fd = folder_fd, .leaf = "to"};
    struct pst_broadcast_options options = {.host = "127.0.0.1", .group = "g", .name = "m", .members = 4};
    struct pst_carry_server *server;
    struct pst_arrival_result result;
    char fault[PST_FAULT_BYTES] = "";
    int r;

    (void)state;
    assert_int_equal(pst_carry_server_open(&settings, &server, fault), 0);
    options.port = pst_carry_server_port(server);
    r = pst_broadcast_get(&options, &to, &result, fault);
    if (r != 0)
        fail_msg("%d: %s", r, fault);
    assert_true(sources.has_ended);
    assert_int_equal(result.bytes, 5);
    pst_broadcasts_stop(sources.second);
    pst_carry_server_close(server);
    pst_broadcasts_close(sources.first);
    pst_broadcasts_close(sources.second);
    assert_int_equal(unlinkat(folder_fd, "to", 0), 0);
    close(folder_fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_that_starts_anew_has_its_member_again)};
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
