/* Names and texts of results, from the one list in <commstream/result.h>. */
#ifndef BASE_RESULT_H
#define BASE_RESULT_H

#include <commstream/result.h>
#include <commstream/version.h>

#include <stdbool.h>
#include <stdint.h>

const char *base_result_name(enum comm_result result); /* "COMM_ERR_PEER"; never NULL */
const char *base_result_text(enum comm_result result);
bool base_result_is_known(enum comm_result result); /* whether it is in that list */
/* The error that another process tells. If it is none, what it tells is wrong. */
enum comm_result base_result_told(int32_t result);

#endif
