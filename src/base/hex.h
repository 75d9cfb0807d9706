/* SPDX-License-Identifier: Apache-2.0 */
/* hex.h: bytes as hexadecimal digits. Pure; any thread. */
#ifndef PST_HEX_H
#define PST_HEX_H

#include "base/base.h"

/* Two lower-case digits a byte, and a NUL behind them. */
void pst_hex_print(const uint8_t *from, size_t bytes, char *to);

#endif
