/* Names and texts of results, generated from the list COMM_RESULTS. */
#include "base/result.h"

const char *base_result_name(enum comm_result result)
{
    switch (result) {
#define RESULT_NAME(name, value, text)                                                                                                     \
    case COMM_##name:                                                                                                                      \
        return "COMM_" #name;
        COMM_RESULTS(RESULT_NAME)
#undef RESULT_NAME
    default:
        return "COMM_?";
    }
}

const char *base_result_text(enum comm_result result)
{
    switch (result) {
#define RESULT_TEXT(name, value, text)                                                                                                     \
    case COMM_##name:                                                                                                                      \
        return text;
        COMM_RESULTS(RESULT_TEXT)
#undef RESULT_TEXT
    default:
        return "no such result";
    }
}

bool base_result_is_known(enum comm_result result)
{
    switch (result) {
#define RESULT_KNOWN(name, value, text) case COMM_##name:
        COMM_RESULTS(RESULT_KNOWN)
#undef RESULT_KNOWN
        return true;
    default:
        return false;
    }
}

enum comm_result base_result_told(int32_t result)
{
    return result < 0 && base_result_is_known((enum comm_result)result) ? (enum comm_result)result : COMM_ERR_CORRUPT;
}
