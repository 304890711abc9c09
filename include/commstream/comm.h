/**
 * @file comm.h
 * @brief The earlier name of commstream.h.
 */
#ifndef COMMSTREAM_COMM_H
#define COMMSTREAM_COMM_H

#include <commstream/commstream.h>

#endif
