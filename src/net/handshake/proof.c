/* SPDX-License-Identifier: Apache-2.0 */
/* proof.c: who has the secret, and who runs on this host. The only user of OpenSSL's HMAC. */
#include "net/handshake/handshake_priv.h"

#include "base/fault.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char labels[][16] = {
    [BOOT_LABEL_CLIENT] = "pst client",
    [BOOT_LABEL_SERVER] = "pst server",
    [BOOT_LABEL_ADDRESS] = "pst address",
    [BOOT_LABEL_ATTACH] = "pst attach",
};

int boot_mac(struct pst_bytes secret, enum boot_label label, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
             const void *body, size_t bytes, uint8_t out[BOOT_MAC_BYTES])
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
    EVP_MAC *mac = pst_fault(PST_FAULT_boot_mac_enomem) ? NULL : EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
    const void *key = secret.len > 0 ? secret.data : ""; /* a key of no bytes still needs an address */
    size_t written = 0;
    int ok;

    pst_assert(label < pst_count_of(labels));
    ok = ctx && EVP_MAC_init(ctx, key, secret.len, params) &&
         EVP_MAC_update(ctx, (const uint8_t *)labels[label], sizeof(labels[label])) &&
         EVP_MAC_update(ctx, transcript, BOOT_TRANSCRIPT_BYTES) &&
         (bytes == 0 || EVP_MAC_update(ctx, body, bytes)) &&
         EVP_MAC_final(ctx, out, &written, BOOT_MAC_BYTES);
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
    pst_assert(!ok || written == BOOT_MAC_BYTES);
    return ok ? 0 : -ENOMEM;
}

struct pst_bytes boot_mac_key(struct pst_bytes secret, const uint8_t *binding, uint8_t bound[BOOT_MAC_BYTES])
{
    uint8_t text[16 + BOOT_MAC_BYTES] = "pst tls binding";
    unsigned int written = 0;

    pst_assert(secret.len <= PST_BOOT_SECRET_BYTES_MAX);
    if (!binding)
        return secret;
    memcpy(text + 16, binding, BOOT_MAC_BYTES);
    if (!HMAC(EVP_sha256(), secret.len > 0 ? secret.data : "", (int)secret.len, text, sizeof(text), bound,
              &written))
        return (struct pst_bytes){NULL, 0};
    pst_assert(written == BOOT_MAC_BYTES);
    return (struct pst_bytes){bound, BOOT_MAC_BYTES};
}

static int mac_compare(const uint8_t own[BOOT_MAC_BYTES], const uint8_t mac[BOOT_MAC_BYTES])
{
    return CRYPTO_memcmp(own, mac, BOOT_MAC_BYTES) == 0 ? 0 : -EACCES;
}

int boot_mac_check(struct pst_bytes secret, enum boot_label label,
                   const uint8_t transcript[BOOT_TRANSCRIPT_BYTES], const void *body, size_t bytes,
                   const uint8_t mac[BOOT_MAC_BYTES])
{
    uint8_t own[BOOT_MAC_BYTES];
    int r;

    pst_assert(mac && transcript);
    r = boot_mac(secret, label, transcript, body, bytes, own);
    return r < 0 ? r : mac_compare(own, mac);
}

int boot_mac_find(const struct pst_boot_secret *secrets, uint32_t count, const uint8_t *binding,
                  const uint8_t transcript[BOOT_TRANSCRIPT_BYTES], const uint8_t mac[BOOT_MAC_BYTES])
{
    uint8_t bound[BOOT_MAC_BYTES];
    int found = -EACCES;

    pst_assert(count >= 1 && count <= PST_BOOT_SECRETS_MAX);
    for (uint32_t i = count; i-- > 0;) {
        struct pst_bytes key = boot_mac_key(secrets[i].secret, binding, bound);
        int r =
            !key.data && binding ? -ENOMEM : boot_mac_check(key, BOOT_LABEL_CLIENT, transcript, NULL, 0, mac);

        if (r == -ENOMEM)
            return r;
        found = r == 0 ? (int)i : found;
    }
    explicit_bzero(bound, sizeof(bound));
    return found;
}

int boot_mac_bind(uint8_t mac[BOOT_MAC_BYTES], const uint8_t binding[BOOT_MAC_BYTES])
{
    uint8_t bound[BOOT_MAC_BYTES];

    pst_assert(mac && binding);
    if (!boot_mac_key((struct pst_bytes){mac, BOOT_MAC_BYTES}, binding, bound).data)
        return -ENOMEM;
    memcpy(mac, bound, BOOT_MAC_BYTES);
    return 0;
}

int boot_attach_mac(struct pst_bytes key, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
                    const uint8_t body[BOOT_ATTACH_BYTES], uint8_t out[BOOT_MAC_BYTES])
{
    pst_assert(transcript && body);
    return boot_mac(key, BOOT_LABEL_ATTACH, transcript, body + BOOT_MAC_BYTES,
                    BOOT_ATTACH_BYTES - BOOT_MAC_BYTES, out);
}

int boot_attach_check(struct pst_bytes key, const uint8_t transcript[BOOT_TRANSCRIPT_BYTES],
                      const uint8_t *binding, const uint8_t body[BOOT_ATTACH_BYTES])
{
    uint8_t own[BOOT_MAC_BYTES];
    int r = boot_attach_mac(key, transcript, body, own);

    if (r == 0 && binding)
        r = boot_mac_bind(own, binding);
    return r < 0 ? r : mac_compare(own, body);
}

void *boot_secret_copy(struct pst_bytes secret)
{
    void *copy = malloc(secret.len + 1);

    pst_assert(secret.len <= PST_BOOT_SECRET_BYTES_MAX);
    if (copy && secret.len > 0)
        memcpy(copy, secret.data, secret.len);
    return copy;
}

void boot_secret_free(struct pst_bytes secret)
{
    void *copy = (void *)(uintptr_t)secret.data;

    pst_assert(secret.len <= PST_BOOT_SECRET_BYTES_MAX);
    if (copy)
        OPENSSL_cleanse(copy, secret.len);
    free(copy);
}

/* The number of a namespace of process @pid ("self" or digits), 0 when it cannot be seen. */
static uint64_t namespace_of(const char *pid, const char *kind)
{
    char path[64];
    struct stat st;
    int n = snprintf(path, sizeof(path), "/proc/%s/ns/%s", pid, kind);

    pst_assert(n > 0);
    pst_assert((size_t)n < sizeof(path));
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Two namespaces in one number. Return: 0 when either cannot be seen. */
static uint64_t namespaces_of(const char *pid, const char *kind, const char *upper_kind)
{
    uint64_t lower = namespace_of(pid, kind), upper = lower ? namespace_of(pid, upper_kind) : 0;

    pst_assert(strcmp(kind, upper_kind) != 0);
    if (lower && !upper && errno == ENOENT) /* a kernel that has only the one */
        upper = 1;
    return lower && upper && lower <= UINT32_MAX && upper <= UINT32_MAX ? lower | upper << 32 : 0;
}

/*
 * Root of a user namespace is not root; and UCX wakes who sleeps over shared memory through sockets that
 * belong to the network namespace, without which the other side answers when it looks by itself.
 */
static void see_namespaces(const char *pid, struct boot_identity *out)
{
    out->pid_ns = namespaces_of(pid, "pid", "user");
    out->ipc_ns = namespaces_of(pid, "ipc", "net");
}

void boot_identity_own(struct boot_identity *out)
{
    pst_cleanup_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n;

    *out = (struct boot_identity){.uid = geteuid()};
    see_namespaces("self", out);
    n = fd >= 0 ? read(fd, out->boot_id, sizeof(out->boot_id) - 1) : -1;
    if (n <= 0) /* not known to be the same host as anyone */
        memset(out->boot_id, 0, sizeof(out->boot_id));
    pst_assert(out->boot_id[sizeof(out->boot_id) - 1] == '\0');
}

void boot_identity_of_peer(int unix_fd, struct boot_identity *out)
{
    struct ucred cred;
    socklen_t bytes = sizeof(cred);
    char pid[16];

    pst_assert(unix_fd >= 0);
    pst_assert(out);
    boot_identity_own(out); /* a unix socket does not leave the host */
    if (getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0 || cred.pid <= 0) {
        out->pid_ns = out->ipc_ns = 0;
        return;
    }
    snprintf(pid, sizeof(pid), "%d", (int)cred.pid);
    out->uid = cred.uid;
    see_namespaces(pid, out);
}

int boot_check_server(int unix_fd, const char **fault)
{
    static _Thread_local char text[96];
    struct ucred cred = {.uid = geteuid() + 1};
    socklen_t bytes = sizeof(cred);

    pst_assert(unix_fd >= 0);
    pst_assert(fault);
    if (getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 &&
        (cred.uid == geteuid() || cred.uid == 0))
        return 0;
    snprintf(text, sizeof(text), "user %u serves the socket, and has not proved with a secret who that is",
             (unsigned)cred.uid);
    *fault = text;
    return -EACCES;
}

bool boot_identity_initial(const struct boot_identity *identity)
{
    const uint32_t first_ipc = 0xefffffff, first_pid = 0xeffffffc; /* linux/proc_ns.h */

    return (uint32_t)identity->ipc_ns == first_ipc && (uint32_t)identity->pid_ns == first_pid;
}

bool boot_identity_same(const struct boot_identity *a, const struct boot_identity *b)
{
    if (a->pid_ns == 0 || a->ipc_ns == 0 || a->boot_id[0] == 0)
        return false;
    return a->uid == b->uid && a->pid_ns == b->pid_ns && a->ipc_ns == b->ipc_ns &&
           memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0;
}
