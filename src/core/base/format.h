/* Text without stdio. Knows %s %.*s %c %p %d %i %u %x %% with l, ll and z; a width and zero padding for numbers; nothing else. Always ends
 * with a zero byte when room > 0; returns the length the whole text would have, as snprintf does. */
#ifndef BASE_FORMAT_H
#define BASE_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t base_format(char *to, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
size_t base_format_list(char *to, size_t room, const char *format, va_list list);
/* Appends at *at and moves it; never past room. */
void base_append(char *to, size_t room, size_t *at, const char *format, ...) __attribute__((format(printf, 4, 5)));
bool base_equal(const char *a, const char *b);                /* strings; NULL equals NULL alone */
void base_copy_text(char *to, size_t room, const char *from); /* cut to fit, always ended; from NULL: empty */
/* A whole unsigned decimal number with nothing before or behind it. */
bool base_parse_u64(const char *text, uint64_t *value);

#endif
