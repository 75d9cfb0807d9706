/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_cast_table.c: what another pod says of tensors that have come from there: a manifest, and the table of
 * where each lies. Whatever it says, the answer is an object with a status, its descriptors are memory that
 * is sealed, and no tensor lies beyond its own.
 */
#include "fuzz.h"

#include "agent/pod/casts_priv.h"
#include "files/relay/relay.h"

#include <fcntl.h>
#include <sys/socket.h>

enum { MEMORY_BYTES = 4096 };

static struct fuzz input;
static int ends[2] = {-1, -1};

int __wrap_pst_broadcast_receive(const struct pst_broadcast_options *options,
                                 const struct pst_broadcast_sink *sink, void *sink_ctx, char *fault);

static int add(struct pst_manifest *m, const char *path, enum pst_entry_kind kind, uint64_t bytes)
{
    const struct pst_entry entry = {.kind = kind, .mode = 0700, .bytes = bytes, .path = path, .target = ""};

    return pst_manifest_add(m, &entry);
}

/* A broadcast of some memories and a table, all of whose bytes are the input's. */
int __wrap_pst_broadcast_receive(const struct pst_broadcast_options *options,
                                 const struct pst_broadcast_sink *sink, void *sink_ctx, char *fault)
{
    struct pst_manifest m = {.entries = NULL};
    uint32_t memories = fuzz_below(&input, 4), odd = fuzz_below(&input, 16);
    size_t taken;
    uint8_t *table = fuzz_take(&input, input.left, &taken);
    char name[POD_MEMORY_NAME_BYTES];
    int r = add(&m, "", PST_ENTRY_FOLDER, 0);

    pst_assert(options->port == 1 && !*options->stop);
    for (uint32_t i = 0; r == 0 && i < memories; i++) {
        cast_memory_name(i, name);
        r = add(&m, name, odd == 1 ? PST_ENTRY_FOLDER : PST_ENTRY_FILE, odd == 1 ? 0 : MEMORY_BYTES);
    }
    if (r == 0)
        r = add(&m, odd == 2 ? "tensorz" : POD_TABLE_NAME, PST_ENTRY_FILE, odd == 3 ? UINT32_MAX : taken);
    if (r == 0)
        r = sink->begin(sink_ctx, &m, fault);
    if (r == 0)
        r = sink->write(sink_ctx, m.count - 1, 0, taken ? table : NULL, taken, fault);
    if (r == 0)
        r = sink->end(sink_ctx, fault);
    sink->close(sink_ctx);
    pst_manifest_fini(&m);
    free(table);
    return r;
}

static void check_answer(char *text, struct pod_fds *go)
{
    struct pst_json *answer = NULL;
    const char *fault = NULL;
    bool good;

    pst_assert(text);
    pst_assert(pst_json_parse_answer(pst_bytes_of(text), &answer, &fault) == 0);
    good = strcmp(pst_json_text(pst_json_get(answer, "status")), "ok") == 0;
    pst_assert(good || pst_json_text(pst_json_get(answer, "error")));
    for (const struct pst_json *one = pst_json_first(pst_json_get(answer, "tensors")); one;
         one = pst_json_next(one)) {
        struct pst_gpu_handle handle = {.kind = 0};
        struct pst_gpu_tensor tensor = {.rank = 0};

        pst_assert(pst_gpu_handle_parse(pst_json_text(pst_json_get(one, "ipc_handle")), &handle, &tensor) ==
                   0);
        pst_assert(handle.descriptor < go->count);
        pst_assert(pst_gpu_host_check(&handle, go->fds[handle.descriptor]) == 0);
    }
    pst_json_free(answer);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char frame[] = "{\"command\":\"receive_broadcast\",\"state_dict\":\"k\",\"group_id\":\"g\","
                                "\"ip\":\"127.0.0.1\",\"port\":1}";
    static const struct pst_pod_settings settings = {.rsync_port = 0};
    struct pst_pod pod = {.settings = &settings};
    const struct pod_fds none = {.count = 0};
    struct pod_fds go = {.count = 0};
    struct pod_caller caller = {.local = true, .pid = getpid()};

    input = (struct fuzz){data, bytes};
    if (ends[0] < 0)
        pst_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    caller.fd = ends[0];
    pst_assert(tensors_open(&pod) == 0 && casts_open(&pod) == 0 && receptions_open(&pod) == 0);
    check_answer(frames_answer(&pod, &caller, pst_bytes_of(frame), &none, &go), &go);
    fds_close(&go);
    receptions_stop(&pod);
    receptions_close(&pod);
    casts_close(&pod);
    tensors_close(&pod);
    return 0;
}
