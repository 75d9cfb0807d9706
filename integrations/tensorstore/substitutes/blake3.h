/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_BLAKE3_H_
#define PENSTOCK_BLAKE3_H_

#include <openssl/sha.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// SHA-256 under BLAKE3's name, which Debian does not have for C.  ocdbt makes
// the generations of its keys of it, which no other process gets to see.
struct blake3_hasher {
  SHA256_CTX context;
};

inline void blake3_hasher_init(blake3_hasher* hasher) {
  SHA256_Init(&hasher->context);
}

inline void blake3_hasher_update(blake3_hasher* hasher, const void* data,
                                 size_t bytes) {
  SHA256_Update(&hasher->context, data, bytes);
}

// At most 32 bytes.
inline void blake3_hasher_finalize(const blake3_hasher* hasher, uint8_t* out,
                                   size_t bytes) {
  SHA256_CTX context = hasher->context;
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &context);
  memcpy(out, digest, bytes);
}

#endif  // PENSTOCK_BLAKE3_H_
