/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[512];

void pst_printable(char *line)
{
    for (; *line; line++) {
        if ((unsigned char)*line < ' ' || *line == 0x7f)
            *line = '?';
    }
}

int pst_fail(int result, const char *format, ...)
{
    char fresh[sizeof(text)];
    va_list args;

    va_start(args, format);
    vsnprintf(fresh, sizeof(fresh), format, args);
    va_end(args);
    pst_printable(fresh);
    strcpy(text, fresh);
    return result;
}

const char *pst_error_text(void)
{
    return text;
}
