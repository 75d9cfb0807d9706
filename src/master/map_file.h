/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_file.h: the pool map in one file, which one master at a time has: a keeper (keeper.h).
 */
#ifndef PST_MAP_FILE_H
#define PST_MAP_FILE_H

#include "master/keeper.h"

/*
 * To take it is to take the lock beside the file, FILE.lock. @path: copied. Return: 0, -errno with the reason
 * in @fault.
 */
int pst_map_file_open(const char *path, struct pst_keeper **out, char fault[PST_FAULT_BYTES]);

#endif
