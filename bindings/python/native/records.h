/* Fields of a struct of the library: name, place and kind, taken from its declaration. */
#ifndef COMMSTREAM_PYTHON_RECORDS_H
#define COMMSTREAM_PYTHON_RECORDS_H

#include "core.h"

enum field_kind { FIELD_TEXT, FIELD_POINTER, FIELD_I32, FIELD_U32, FIELD_U64 };

struct field {
    const char *name;
    size_t offset;
    enum field_kind kind;
};

/* An array of char decays to char *; a pointer of the library's is to const. */
#define FIELD(type, field)                                                                                                                 \
    {                                                                                                                                      \
#field, offsetof(type, field), _Generic(((type *)0)->field,                                                                        \
            char *: FIELD_TEXT,                                                                                                            \
            const char *: FIELD_POINTER,                                                                                                   \
            int32_t: FIELD_I32,                                                                                                            \
            uint32_t: FIELD_U32,                                                                                                           \
            uint64_t: FIELD_U64)       \
    }

extern const struct field info_fields[], peer_fields[], request_fields[], backend_fields[], option_fields[], algorithm_fields[],
    stats_fields[];
PyObject *record_dict(const void *record, const struct field *fields);

#endif
