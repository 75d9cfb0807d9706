/* SPDX-License-Identifier: Apache-2.0 */
/* hex.h: bytes as hexadecimal digits. Pure; any thread. */
#ifndef PST_HEX_H
#define PST_HEX_H

#include "base/base.h"

/* Two lower-case digits a byte, and a NUL behind them. */
void pst_hex_print(const uint8_t *from, size_t bytes, char *to);

/* The value of a lower-case digit; -1 of any other character. */
int pst_hex_digit(char c);

/* The same, of digits in either case. */
int pst_hex_digit_any_case(char c);

/* Reads two lower-case digits a byte. Return: false: a character is none, and @to is undefined. */
bool pst_hex_parse(const char *from, uint8_t *to, size_t bytes);

#endif
