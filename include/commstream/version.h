/**
 * @file version.h
 * @brief The version of these headers. comm_version() returns that of the library.
 */
#ifndef COMMSTREAM_VERSION_H
#define COMMSTREAM_VERSION_H

#include <commstream/export.h>

/** Changes when programs must be changed. */
#define COMM_VERSION_MAJOR 0
/** Changes when functions are added; before 1.0 also when programs must be changed. */
#define COMM_VERSION_MINOR 1
/** Changes with every other release. */
#define COMM_VERSION_PATCH 0
/** The version as one number, to compare: major << 16 | minor << 8 | patch. */
#define COMM_VERSION (COMM_VERSION_MAJOR << 16 | COMM_VERSION_MINOR << 8 | COMM_VERSION_PATCH)

#endif
