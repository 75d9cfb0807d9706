/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c: digests of pieces. Each member makes each of them, so they bound how fast pieces pass: SHA-256 by
 * a processor's own instructions is the quickest, and without them takes twice as long as BLAKE2b. */
#include "files/relay/relay_priv.h"

#include <openssl/evp.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

void relay_digest(bool blake2b, const void *data, size_t bytes, uint8_t out[PST_SHA256_BYTES])
{
    uint8_t whole[EVP_MAX_MD_SIZE];

    if (!blake2b) {
        pst_sha256(data, bytes, out);
        return;
    }
    pst_assert(EVP_Digest(data, bytes, whole, NULL, EVP_blake2b512(), NULL) == 1);
    memcpy(out, whole, PST_SHA256_BYTES);
}

bool relay_prefers_blake2b(void)
{
#if defined(__x86_64__)
    const unsigned sha = 1u << 29; /* of EBX in leaf 7 */
    unsigned a, b, c, d;

    return !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & sha);
#elif defined(__aarch64__)
    return !(getauxval(AT_HWCAP) & HWCAP_SHA2);
#else
    return true;
#endif
}
