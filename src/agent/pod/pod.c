/* SPDX-License-Identifier: Apache-2.0 */
/* pod.c: the agent's parts in the order in which they open and end, and what is done every few seconds. */
#include "agent/pod/casts_priv.h"
#include "agent/pod/rounds_priv.h"

#include "base/paths.h"
#include "base/error.h"
#include "base/wait.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>

static int fail(int error, char fault[PST_FAULT_BYTES], const char *what, const char *why)
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%.100s: %.140s", what, why);
    return error;
}

/* ---- settings ---- */

static int read_unix_address(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    const char *said = pod->settings->agent_socket;
    char *path = pod->unix_address.path;

    if (!said) {
        int r = pst_default_socket(PST_AGENT_SOCKET, true, path, sizeof(pod->unix_address.path));

        return r < 0 ? fail(r, fault, "agent_socket", pst_error_text()) : 0;
    }
    if (strlen(said) >= sizeof(pod->unix_address.path))
        return fail(-EINVAL, fault, "agent_socket", "unix path too long");
    snprintf(path, sizeof(pod->unix_address.path), "%s", said);
    return 0;
}

static int read_tcp_address(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    const struct pst_pod_settings *settings = pod->settings;
    struct in_addr numeric;
    const char *why = "";
    int r =
        pst_boot_address_parse(settings->agent_listen ? settings->agent_listen : "", &pod->tcp_address, &why);

    if (r == 0 && pod->tcp_address.path[0])
        r = -EINVAL, why = "must be host:port";
    if (r < 0)
        return fail(r, fault, "agent_listen", why);
    if (!settings->token_file && !settings->agent_network && !pst_boot_address_loopback(&pod->tcp_address))
        return fail(-EINVAL, fault, "agent_listen", "off loopback it needs token_file, or agent_network=yes");
    if (pst_boot_address_wildcard(&pod->tcp_address))
        return 0;
    if (inet_pton(AF_INET, pod->tcp_address.host, &numeric) != 1) /* as rsync's daemon takes it */
        return fail(-EINVAL, fault, "agent_listen", "the host must be an IPv4 address");
    snprintf(pod->rsync_host, sizeof(pod->rsync_host), "%.15s", pod->tcp_address.host);
    return 0;
}

static int read_token(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    int bytes = pod->settings->token_file
                    ? pst_secret_read(pod->settings->token_file, pod->token, sizeof(pod->token), fault)
                    : 0;

    pst_assert(bytes <= (int)sizeof(pod->token));
    pod->token_bytes = bytes > 0 ? (uint32_t)bytes : 0;
    return bytes < 0 ? bytes : 0;
}

/* For the rsync daemon's settings: of this process alone. */
static int make_folder(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    const char *temporary = getenv("TMPDIR");
    char made[PATH_MAX];
    int r = 0;

    pst_assert(!pod->rsyncd_folder[0]);
    snprintf(made, sizeof(made), "%.3000s/penstock-agent-XXXXXX",
             temporary && *temporary == '/' ? temporary : "/tmp");
    if (!mkdtemp(made))
        r = -errno;
    else if (!realpath(made, pod->rsyncd_folder)) {
        r = -errno;
        rmdir(made);
        pod->rsyncd_folder[0] = 0;
    }
    return r < 0 ? fail(r, fault, made, strerror(-r)) : 0;
}

/* ---- the sweeper ---- */

static void *sweep(void *arg)
{
    struct pst_pod *pod = arg;
    struct pollfd stop = {.fd = pod->stop_fd, .events = POLLIN};

    while (poll(&stop, 1, POD_SWEEP_MS) == 0) {
        offers_sweep(pod);
        finished_sweep(pod);
        tensors_sweep(pod);
        casts_sweep(pod);
        rounds_sweep(pod);
    }
    return NULL;
}

/* ---- beginning and end ---- */

static int open_all(struct pst_pod *pod, char fault[PST_FAULT_BYTES])
{
    char line[400];
    int r = read_unix_address(pod, fault);

    pst_assert(pod->stop_fd >= 0);
    pst_assert(!pod->sweeps);
    if (r == 0)
        r = read_tcp_address(pod, fault);
    if (r == 0)
        r = read_token(pod, fault);
    if (r == 0)
        r = make_folder(pod, fault);
    if (r == 0 &&
        (tensors_open(pod) < 0 || casts_open(pod) < 0 || receptions_open(pod) < 0 || rounds_open(pod) < 0))
        r = fail(-ENOMEM, fault, "agent", "out of memory");
    if (r == 0)
        r = data_open(pod, fault); /* before the first offer, whose modules depend on it */
    if (r == 0)
        r = sockets_open(pod, fault);
    if (r < 0)
        return r;
    r = -pthread_create(&pod->sweeper, NULL, sweep, pod);
    pod->sweeps = r == 0;
    if (r < 0)
        return fail(r, fault, "agent", strerror(-r));
    snprintf(line, sizeof(line), "agent: ready on %s and %s:%u", pod->unix_address.path,
             pod->tcp_address.host, pod->tcp_address.port);
    pod->log(pod->log_ctx, line);
    return 0;
}

static void locks_open(struct pst_pod *pod)
{

    pst_cond_init(&pod->finished_changed);
    pthread_mutex_init(&pod->offers_lock, NULL);
    pthread_mutex_init(&pod->finished_lock, NULL);
    pthread_mutex_init(&pod->finishing_lock, NULL);
}

int pst_pod_open(const struct pst_pod_settings *settings, void (*log)(void *ctx, const char *line),
                 void *log_ctx, struct pst_pod **out, char fault[PST_FAULT_BYTES])
{
    struct pst_pod *pod = calloc(1, sizeof(*pod));
    int r;

    pst_assert(settings && log && out);
    if (!pod)
        return fail(-ENOMEM, fault, "agent", "out of memory");
    pod->settings = settings;
    pod->log = log;
    pod->log_ctx = log_ctx;
    pod->unix_fd = pod->tcp_fd = -1;
    pst_list_init(&pod->offers);
    pst_list_init(&pod->finished);
    locks_open(pod);
    pod->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = pod->stop_fd < 0 ? fail(-errno, fault, "agent", strerror(errno)) : open_all(pod, fault);
    if (r < 0) {
        pst_pod_close(pod);
        return r;
    }
    *out = pod;
    return 0;
}

struct pst_pod *pst_pod_close(struct pst_pod *pod)
{
    if (!pod)
        return NULL;
    sockets_close(pod);
    if (pod->sweeps) {
        pst_event_set(pod->stop_fd);
        pst_assert(pthread_join(pod->sweeper, NULL) == 0);
    }
    pst_assert(!pod->acceptor);
    data_close(pod);
    finished_close(pod);
    offers_close(pod);
    rounds_close(pod);
    receptions_close(pod);
    casts_close(pod);
    tensors_close(pod);
    pst_close_fd(&pod->stop_fd);
    pthread_mutex_destroy(&pod->finishing_lock);
    pthread_mutex_destroy(&pod->finished_lock);
    pthread_mutex_destroy(&pod->offers_lock);
    pthread_cond_destroy(&pod->finished_changed);
    explicit_bzero(pod->token, sizeof(pod->token));
    pst_assert(pod->offer_count == 0);
    pst_assert(pod->finished_count == 0);
    pst_assert(!pod->rsyncd);
    free(pod);
    return NULL;
}
